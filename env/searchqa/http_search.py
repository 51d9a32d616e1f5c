"""A search service over HTTP, in the wire format of Search-R1's ``/retrieve``.

A call has one total deadline. What may pass (no connection, timeout, 429, 502, 503, 504) is
retried with full jitter, honouring ``Retry-After``; what will not (another status, a malformed
reply) fails at once. Nothing a service says about a failure ever becomes text the agent reads.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from searchqa.errors import ConfigError, SearchProtocolError, SearchUnavailable
from searchqa.types import SearchHit

if TYPE_CHECKING:
    import httpx  # imported at the first call: it costs a tenth of a second

_RETRIED = frozenset({429, 502, 503, 504})
_PLACEHOLDER = re.compile(
    r"[<>{}$\s]|^your[-_.]|placeholder|search[-_]url|change-?me|^example\.(com|org|net)$"
)
_READY_S = 10.0
"""Longest wait for a service to come up, in seconds."""
_LONGEST_BACKOFF_S = 2.0
_LEAST_S = 0.05
"""With less than this left no further attempt is worth it, in seconds."""
_FINGERPRINT = "X-Index-Fingerprint"
_OPENING = threading.Lock()
_PROBE = "Who was the first president?"


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
        if not timeout_s > 0:
            raise ConfigError(f"search_timeout_s must be above 0, not {timeout_s}")
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
        body = {"queries": list(queries), "topk": top_k, "return_scores": True}
        reply = self._call("POST", self.url, body, time.monotonic() + self.timeout_s)
        return read_reply(reply, len(queries), top_k, self.url)

    def check_ready(self) -> None:
        """Wait until the service is ready, at most ten seconds or the timeout; then one search.

        A service that answers but is still loading gets all of that time, one that cannot be
        reached only the usual retries. A service without ``/ready`` is judged by the search
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
                self._client = httpx.Client(limits=limits, verify=verify)
                self._owner = os.getpid()
                weakref.finalize(self, self._client.close)
            return self._client

    def _call(
        self, method: str, url: str, body: Any, deadline: float, *, patient: bool = False
    ) -> Any:
        """Send until it works, it cannot work, or the deadline or the retries run out.

        With ``patient`` an answer of 503 does not count as a retry.
        """
        began, jitter = time.monotonic(), random.Random()
        attempts, left = 0, self.max_retries
        while True:
            # Half of what remains, so that a hung attempt leaves time for another.
            share = 0.5 if left else 1.0
            seconds = max(deadline - time.monotonic(), 0.001) * share
            status, reply, wait = self._attempt(method, url, body, seconds)
            if status == 200:
                return reply
            if isinstance(status, int) and status not in _RETRIED:
                raise self._refused(status, reply, url)
            ceiling = min(self.backoff_s * 2**attempts, _LONGEST_BACKOFF_S)
            pause = max(wait, jitter.uniform(0.0, ceiling))
            attempts += 1
            if not left or time.monotonic() + pause + _LEAST_S > deadline:
                raise SearchUnavailable(
                    f"the search service at {url} did not answer ({attempts} attempts in "
                    f"{time.monotonic() - began:.1f} s, the last: {status}); start it or correct "
                    "the URL"
                )
            left -= not (patient and status == 503)
            time.sleep(pause)

    def _attempt(
        self, method: str, url: str, body: Any, seconds: float
    ) -> tuple[int | str, Any, float]:
        """One request: (status code or the name of the failure, reply, seconds to wait)."""
        import httpx

        deadline = time.monotonic() + seconds
        try:  # the status says whether the caller retries
            with self._connected().stream(method, url, json=body, timeout=seconds) as response:
                content = _read_before(response, deadline)
                wait = _retry_after(response.headers.get("retry-after", ""))
                self.fingerprint = response.headers.get(_FINGERPRINT, self.fingerprint)
        except (httpx.TransportError, TimeoutError) as error:
            return type(error).__name__, None, 0.0
        if response.status_code != 200:
            return response.status_code, content[:200].decode("utf-8", "replace"), wait
        return 200, _json(content, url), 0.0

    def _refused(self, status: int, reply: Any, url: str) -> Exception:
        text = " ".join(str(reply).split())
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
    except ValueError as error:
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
    score = item.get("score")
    number = float(score) if isinstance(score, int | float) else 0.0
    return SearchHit(id=str(document.get("id", "")), contents=contents, score=number)
