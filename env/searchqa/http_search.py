"""A search service over HTTP, in the wire format of Search-R1's ``/retrieve``.

A call has one total deadline. What may pass (no connection, timeout, 429, 502, 503, 504) is
retried with full jitter, honouring ``Retry-After``; what will not (another status, a malformed
reply) fails at once. Nothing a service says about a failure ever becomes text the agent reads.
"""

from __future__ import annotations

import math
import os
import random
import re
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from searchqa.errors import ConfigError, SearchProtocolError, SearchUnavailable
from searchqa.spaces import well_formed
from searchqa.types import SearchHit

if TYPE_CHECKING:
    import httpx  # imported at the first call: it costs a tenth of a second

_RETRIED = frozenset({429, 502, 503, 504})
_PLACEHOLDER = re.compile(
    r"[<>{}$\s]|^your[-_.]|placeholder|search[-_]url|change-?me|^example\.(com|org|net)$"
)
_READY_S = 10.0
"""Longest wait for a service to come up, in seconds."""
_LONGEST_S = 86_400
"""Longest deadline of a call, in seconds: sockets cannot wait for ever."""
_LOOPBACK = re.compile(r"localhost|127(\.\d+){3}|::1")
_LONGEST_BACKOFF_S = 2.0
_LEAST_S = 0.05
"""With less than this left no further attempt is worth it, in seconds."""
_GRACE_S = 0.02
"""How much longer than its sockets a request may take, so that their own errors come first."""
_FINGERPRINT = "X-Index-Fingerprint"
_OPENING = threading.Lock()
_PROBE = "Who was the first president?"


@dataclass(frozen=True, slots=True)
class _Reply:
    """What one request brought."""

    status: int | str
    """Status code, or the name of the failure."""
    content: bytes = b""
    wait: float = 0.0
    """Seconds the service asks to wait."""
    fingerprint: str = ""


class HttpSearch:
    """A client of one service. Safe to share between threads, to fork and to pickle."""

    def __init__(
        self, url: str, *, timeout_s: float = 30.0, max_retries: int = 5, backoff_s: float = 0.1
    ) -> None:
        """Check the address; nothing is opened yet.

        Args:
            url: Base URL of a service, or its full ``.../retrieve``.
            timeout_s: Total deadline of one call, retries and waits included, in seconds.
            max_retries: Most retries of one call.
            backoff_s: Upper bound of the first wait in seconds; doubles with each retry.

        Raises:
            ConfigError: The URL is malformed or a placeholder, or a number is out of range.
        """
        if not isinstance(timeout_s, int | float) or not 0 < timeout_s <= _LONGEST_S:
            raise ConfigError(
                f"search_timeout_s must be above 0 and at most {_LONGEST_S}, not {timeout_s!r}"
            )
        self.url = _retrieve_url(url)
        self.timeout_s = timeout_s
        self.max_retries = max_retries
        self.backoff_s = backoff_s
        self.fingerprint = ""
        self._ready = False
        self._forget_client()

    def search(self, queries: Sequence[str], top_k: int) -> list[list[SearchHit]]:
        """One list of hits for each query, in order, best first.

        Args:
            queries: Sent in one request.
            top_k: Most hits for each.

        Raises:
            SearchUnavailable: The deadline or the retries ran out, or the service answered 500.
            SearchProtocolError: The service refused the request or its reply is malformed.
        """
        body = {"queries": [well_formed(q) for q in queries], "topk": top_k, "return_scores": True}
        reply = self._call("POST", self.url, body, time.monotonic() + self.timeout_s)
        return read_reply(reply, len(queries), top_k, self.url)

    def check_ready(self) -> None:
        """Wait until the service is ready, at most ten seconds or the timeout; then one search.

        A service that is still loading and one that refuses connections, because it is just
        starting, get all of that time. A service without ``/ready`` is judged by the search
        alone. Once ready, never asked again.

        Raises:
            SearchUnavailable: It is not, or not yet.
            SearchProtocolError: Its reply to a search is malformed.
        """
        if self._ready:
            return
        deadline = time.monotonic() + min(self.timeout_s, _READY_S)
        base = self.url.removesuffix("/retrieve")
        with suppress(SearchProtocolError):  # no such path: the search below decides
            self._call("GET", f"{base}/ready", None, deadline, patient=True)
        body = {"queries": [_PROBE], "topk": 1, "return_scores": True}
        read_reply(self._call("POST", self.url, body, deadline), 1, 1, self.url)
        self._ready = True

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        if self._client is not None and self._owner == os.getpid():
            self._client.close()
        self._forget_client()

    def _forget_client(self) -> None:
        self._client: httpx.Client | None = None
        self._owner = -1

    def _connected(self) -> httpx.Client:
        """The client of this process: sockets must not be shared across a fork."""
        with _OPENING:  # two threads must not open two
            if self._client is None or self._owner != os.getpid():
                import httpx

                limits = httpx.Limits(max_connections=256, max_keepalive_connections=64)
                verify = self.url.startswith("https:")  # loading certificates costs 20 ms
                host = urlsplit(self.url).hostname or ""
                proxies = not _LOOPBACK.fullmatch(host)  # no proxy leads to this machine
                self._client = httpx.Client(limits=limits, verify=verify, trust_env=proxies)
                self._owner = os.getpid()
                weakref.finalize(self, self._client.close)
            return self._client

    def _call(
        self, method: str, url: str, body: Any, deadline: float, *, patient: bool = False
    ) -> Any:
        """Send until it works, it cannot work, or the deadline or the retries run out.

        With ``patient`` neither an answer of 503 nor a refused connection counts as a retry.
        """
        began, jitter = time.monotonic(), random.Random()
        attempts, left = 0, self.max_retries
        while True:
            # Half of what remains, so that a hung attempt leaves time for another.
            share = 0.5 if left else 1.0
            seconds = max(deadline - time.monotonic(), 0.001) * share
            status, reply, wait = self._attempt(method, url, body, seconds)
            if status == 200:
                return _json(reply, url)
            if isinstance(status, int) and status not in _RETRIED:
                raise self._refused(status, reply, url)
            ceiling = min(self.backoff_s * 2 ** min(attempts, 30), _LONGEST_BACKOFF_S)
            pause = max(wait, jitter.uniform(0.0, ceiling))
            attempts += 1
            if not left or time.monotonic() + pause + _LEAST_S > deadline:
                raise SearchUnavailable(
                    f"the search service at {url} did not answer ({attempts} attempts in "
                    f"{time.monotonic() - began:.1f} s, the last: {status}); start it or correct "
                    "the URL"
                )
            left -= not (patient and status in (503, "ConnectError"))
            time.sleep(pause)

    def _attempt(
        self, method: str, url: str, body: Any, seconds: float
    ) -> tuple[int | str, bytes, float]:
        """One request: (status code or the name of the failure, reply, seconds to wait).

        It runs in a thread of its own, because a server that trickles header bytes outlasts every
        timeout of a socket; such a thread is left behind until the server hangs up.
        """
        outcome: Future[_Reply] = Future()
        work = (outcome, method, url, body, seconds)
        threading.Thread(target=self._exchange, args=work, daemon=True).start()
        try:  # the status says whether the caller retries
            reply = outcome.result(seconds + _GRACE_S)
        except TimeoutError:
            return "TimeoutError", b"", 0.0
        self.fingerprint = reply.fingerprint or self.fingerprint
        return reply.status, reply.content, reply.wait

    def _exchange(
        self, outcome: Future[_Reply], method: str, url: str, body: Any, seconds: float
    ) -> None:
        import httpx

        deadline = time.monotonic() + seconds
        try:  # the status is the outcome, whatever it is
            with self._connected().stream(method, url, json=body, timeout=seconds) as response:
                content = _read_before(response, deadline)
            headers = response.headers
            wait = _retry_after(headers.get("retry-after", ""))
            fingerprint = headers.get(_FINGERPRINT, "")
            outcome.set_result(_Reply(response.status_code, content, wait, fingerprint))
        except (httpx.RequestError, TimeoutError) as error:
            outcome.set_result(_Reply(type(error).__name__))
        except BaseException as error:
            outcome.set_exception(error)

    def _refused(self, status: int, reply: bytes, url: str) -> Exception:
        text = " ".join(reply[:200].decode("utf-8", "replace").split())
        if status >= 500:
            return SearchUnavailable(f"the search service at {url} failed with {status}: {text}")
        return SearchProtocolError(f"the search service at {url} answered {status}: {text}")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_owner": -1}

    def __deepcopy__(self, memo: dict[int, Any]) -> HttpSearch:
        """Holds no state of an episode: a copy is the client itself."""
        return self


def _retrieve_url(url: str) -> str:
    try:  # the status of a URL that cannot be split is no host
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("http", "https") or _PLACEHOLDER.search(host):
        raise ConfigError(
            f"search={url!r} is no address of a service; use one such as http://127.0.0.1:8000"
        )
    path = parts.path.rstrip("/")
    if not path.endswith("/retrieve"):
        path += "/retrieve"
    return parts._replace(path=path, fragment="").geturl()


def _read_before(response: httpx.Response, deadline: float) -> bytes:
    """The body; a server that trickles bytes cannot outlast the deadline."""
    parts = []
    for part in response.iter_bytes():
        parts.append(part)
        if time.monotonic() > deadline:
            raise TimeoutError
    return b"".join(parts)


def _retry_after(value: str) -> float:
    """Seconds of a ``Retry-After`` header; its date form is answered by our own backoff."""
    return float(value) if value.isdecimal() else 0.0


def _json(content: bytes, url: str) -> Any:
    import json

    try:  # the status is the package's own error
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SearchProtocolError(f"the search service at {url} sent no JSON: {error}") from error


def read_reply(reply: Any, queries: int, top_k: int, url: str) -> list[list[SearchHit]]:
    """Read ``{"result": [[{"document": {"id", "contents"}, "score"}, ...], ...]}``.

    Bare documents instead of ``{"document", "score"}`` are read too. More hits than were asked
    for are cut.

    Args:
        reply: Parsed JSON.
        queries: Number of lists there must be.
        top_k: Most hits for each.
        url: Named in errors.

    Raises:
        SearchProtocolError: A field is missing or has the wrong form; names it.
    """
    result = reply.get("result") if isinstance(reply, dict) else None
    if not isinstance(result, list):
        raise SearchProtocolError(f'the reply of {url} has no list "result"')
    if len(result) != queries:
        raise SearchProtocolError(
            f'"result" in the reply of {url} must hold {queries} lists, one a query, '
            f"not {len(result)}"
        )
    return [[_hit(item, url) for item in _list(hits, url)[:top_k]] for hits in result]


def _list(hits: Any, url: str) -> list[Any]:
    if not isinstance(hits, list):
        raise SearchProtocolError(f'"result" in the reply of {url} must hold lists of hits')
    return hits


def _hit(item: Any, url: str) -> SearchHit:
    bare = isinstance(item, dict) and "contents" in item
    document = item if bare else item.get("document") if isinstance(item, dict) else None
    if not isinstance(document, dict):
        raise SearchProtocolError(f'a hit in the reply of {url} has no "document"')
    contents = document.get("contents")
    if not isinstance(contents, str):
        raise SearchProtocolError(f'a document in the reply of {url} has no text "contents"')
    name = document.get("id")
    return SearchHit(
        id="" if name is None else well_formed(str(name)),
        contents=well_formed(contents),
        score=_score(item.get("score"), url),
    )


def _score(value: Any, url: str) -> float:
    if value is None:
        return 0.0
    try:  # the status of an integer beyond all floats is that it is not finite
        number = float(value) if type(value) in (int, float) else math.inf
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise SearchProtocolError(
            f'"score" in the reply of {url} must be a finite number, not {str(value)[:40]!r}'
        )
    return number
