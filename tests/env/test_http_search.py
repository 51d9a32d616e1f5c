"""Against real sockets: a small server that behaves and misbehaves on command."""

from __future__ import annotations

import copy
import json
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from searchqa.errors import ConfigError, SearchProtocolError, SearchUnavailable
from searchqa.http_search import HttpSearch
from searchqa.search import SearchBackend, open_search

GOOD = {"result": [[{"document": {"id": "1", "contents": '"T"\nx'}, "score": 2.5}]]}


class Server(ThreadingHTTPServer):
    """Answers POSTs from ``script``: (status, headers, body or a function of the handler)."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.script: list[tuple[int, dict[str, str], Any]] = []
        self.ready = 200
        self.seen: list[Any] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.seen.append(self.path)
        self.answer(self.server.ready, {}, {"status": "ready"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append(body)
        reply = {"result": GOOD["result"] * len(body["queries"])}
        self.answer(*(self.server.script.pop(0) if self.server.script else (200, {}, reply)))

    def answer(self, status: int, headers: dict[str, str], body: Any) -> None:
        if callable(body):
            body(self)
            return
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def client(server: Server) -> Iterator[Callable[..., HttpSearch]]:
    made = []

    def make(**changes: Any) -> HttpSearch:
        made.append(HttpSearch(server.url, **{"timeout_s": 5.0, "backoff_s": 0.001, **changes}))
        return made[-1]

    yield make
    for search in made:
        search.close()


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_one_request_in_the_published_form(server: Server, client: Any) -> None:
    server.script = [(200, {"X-Index-Fingerprint": "f1"}, {"result": GOOD["result"] * 2})]
    search = client()
    first, second = search.search(["é ?", ""], 3)
    assert server.seen == [{"queries": ["é ?", ""], "topk": 3, "return_scores": True}]
    assert first == second
    assert (first[0].id, first[0].contents, first[0].score) == ("1", '"T"\nx', 2.5)
    assert search.fingerprint == "f1"
    assert isinstance(search, SearchBackend)


@pytest.mark.parametrize(
    ("url", "full"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/retrieve"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/retrieve"),
        ("http://h:1/retrieve", "http://h:1/retrieve"),
        ("http://h:1/retrieve/", "http://h:1/retrieve"),
        ("https://h/api/v2", "https://h/api/v2/retrieve"),
        ("http://h:1/retrieve?key=a", "http://h:1/retrieve?key=a"),
    ],
)
def test_a_base_url_and_a_full_one_mean_the_same(url: str, full: str) -> None:
    assert HttpSearch(url).url == full


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http:///retrieve",
        "http://your-search-server:8000",
        "http://<host>:8000",
        "http://{host}/retrieve",
        "http://$HOST/",
        "http://search_url/",
        "http://example.com/retrieve",
        "http://PLACEHOLDER",
        "http://changeme:80",
        "http://h:port/",
        "http://[::1/",
        "ftp://h/",
    ],
)
def test_a_placeholder_is_refused_at_construction(url: str) -> None:
    with pytest.raises(ConfigError, match="no address of a service; use one such as http://127"):
        HttpSearch(url)


def test_a_deadline_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="search_timeout_s must be above 0"):
        open_search("http://127.0.0.1:9", "", 0.0)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_may_pass_is_retried(server: Server, client: Any, status: int) -> None:
    server.script = [(status, {}, {})] * 3
    assert client().search(["q"], 3)[0]
    assert len(server.seen) == 4


def test_retry_after_is_honoured(server: Server, client: Any) -> None:
    server.script = [(503, {"Retry-After": "1"}, {})]
    began = time.monotonic()
    assert client().search(["q"], 3)[0]
    assert time.monotonic() - began >= 1.0


def test_a_retry_after_beyond_the_deadline_is_not_waited_for(server: Server, client: Any) -> None:
    server.script = [(503, {"Retry-After": "60"}, {})]
    began = time.monotonic()
    with pytest.raises(SearchUnavailable, match=r"did not answer \(1 attempts in .* the last: 503"):
        client().search(["q"], 3)
    assert time.monotonic() - began < 1.0


def test_a_retry_after_that_is_a_date_is_retried_all_the_same(server: Server, client: Any) -> None:
    server.script = [(503, {"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"}, {})]
    assert client().search(["q"], 3)[0]


def test_retries_are_bounded(server: Server, client: Any) -> None:
    server.script = [(503, {}, {})] * 99
    with pytest.raises(SearchUnavailable, match=r"3 attempts"):
        client(max_retries=2).search(["q"], 3)
    assert len(server.seen) == 3


def test_any_number_of_retries_can_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    search = HttpSearch("http://127.0.0.1:9", backoff_s=0.0, max_retries=1500, timeout_s=60.0)
    monkeypatch.setattr(search, "_attempt", lambda *_: (503, b"", 0.0))
    with pytest.raises(SearchUnavailable, match="1501 attempts"):
        search.search(["q"], 3)


def test_a_real_fault_is_not_retried(server: Server, client: Any) -> None:
    server.script = [(500, {}, {"detail": "boom"})]
    with pytest.raises(SearchUnavailable, match=r"failed with 500: .*boom"):
        client().search(["q"], 3)
    assert len(server.seen) == 1


@pytest.mark.parametrize("status", [301, 400, 404, 413, 422])
def test_a_refusal_is_a_protocol_error(server: Server, client: Any, status: int) -> None:
    server.script = [(status, {}, {"detail": "no such thing"})]
    with pytest.raises(SearchProtocolError, match=f"answered {status}: .*no such thing"):
        client().search(["q"], 3)
    assert len(server.seen) == 1


def test_a_server_that_hangs_up_is_retried(server: Server, client: Any) -> None:
    server.script = [(200, {}, lambda handler: handler.connection.shutdown(socket.SHUT_RDWR))]
    assert client().search(["q"], 3)[0]


def hang(handler: Handler) -> None:
    time.sleep(1.5)


def trickle(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    for _ in range(15):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.1)


def trickle_headers(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    for _ in range(15):
        handler.wfile.write(b"a")
        handler.wfile.flush()
        time.sleep(0.1)


@pytest.mark.parametrize("fault", [hang, trickle, trickle_headers])
def test_a_call_has_one_total_deadline(server: Server, client: Any, fault: Any) -> None:
    server.script = [(200, {}, fault)] * 9
    began = time.monotonic()
    with pytest.raises(SearchUnavailable, match="did not answer"):
        client(timeout_s=0.4).search(["q"], 3)
    assert time.monotonic() - began < 1.0


def test_a_body_that_cannot_be_decoded_is_a_failed_attempt(server: Server, client: Any) -> None:
    server.script = [(200, {"Content-Encoding": "gzip"}, b"this is no gzip")]
    assert client().search(["q"], 3)[0]
    assert len(server.seen) == 2


def test_no_proxy_is_asked_for_a_service_on_this_machine(
    server: Server, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    assert client(max_retries=0).search(["q"], 3)[0]


def test_a_service_that_is_just_starting_is_waited_for() -> None:
    port = closed_port()
    with ThreadPoolExecutor(1) as pool:
        probing = pool.submit(HttpSearch(f"http://127.0.0.1:{port}", max_retries=1).check_ready)
        time.sleep(0.8)
        assert not probing.done()
        with Server(port) as late:
            thread = threading.Thread(target=late.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            probing.result(timeout=9)
            late.shutdown()
            thread.join()


def test_lone_surrogates_in_a_query_are_replaced(server: Server, client: Any) -> None:
    assert client().search(["a\ud800"], 3)[0]
    assert server.seen[0]["queries"] == ["a\ufffd"]


def test_a_fault_of_the_callers_own_comes_through_as_it_is(client: Any) -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        client().search(["q"], object())  # type: ignore[arg-type]


def test_a_hung_attempt_leaves_time_for_another(server: Server, client: Any) -> None:
    server.script = [(200, {}, hang)]
    assert client(timeout_s=1.2).search(["q"], 3)[0]


def test_nobody_listening_is_one_sentence_with_the_url() -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    search = HttpSearch(url, timeout_s=0.5)
    began = time.monotonic()
    with pytest.raises(SearchUnavailable, match=f"{url}.* ConnectError.*; start it or correct"):
        search.check_ready()
    assert time.monotonic() - began < 1.5


def test_a_ready_service_is_asked_once(server: Server, client: Any) -> None:
    search = client()
    search.check_ready()
    search.check_ready()
    assert [x if isinstance(x, str) else "POST" for x in server.seen] == ["/ready", "POST"]


def test_a_service_that_comes_up_late_is_waited_for(server: Server, client: Any) -> None:
    server.ready = 503
    threading.Timer(0.3, setattr, [server, "ready", 200]).start()
    client(max_retries=1, backoff_s=0.01).check_ready()
    assert len(server.seen) > 3


def test_a_service_that_never_is_ready(server: Server, client: Any) -> None:
    server.ready = 503
    with pytest.raises(
        SearchUnavailable, match=r"/ready did not answer .* the last: (503|ReadT|Timeout)"
    ):
        client(timeout_s=0.3).check_ready()


def test_a_service_without_a_ready_path_is_judged_by_a_search(server: Server, client: Any) -> None:
    server.ready = 404
    client().check_ready()
    server.script = [(200, {}, {"result": [[{"doc": {"contents": "x"}}]]})]
    with pytest.raises(SearchProtocolError, match=r'a hit in the reply of .* has no "document"'):
        client().check_ready()


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b"<html>", "sent no JSON"),
        ([], 'no list "result"'),
        ({"results": []}, 'no list "result"'),
        ({"error": "busy"}, 'no list "result"'),
        ({"result": None}, 'no list "result"'),
        ({"result": []}, "must hold 1 lists, one a query, not 0"),
        ({"result": [[], []]}, "must hold 1 lists, one a query, not 2"),
        ({"result": [{"document": {}}]}, "must hold lists of hits"),
        ({"result": [["text"]]}, 'no "document"'),
        ({"result": [[{"document": "text"}]]}, 'no "document"'),
        ({"result": [[{"document": {"id": 1, "content": "x"}}]]}, 'no text "contents"'),
        ({"result": [[{"document": {"contents": None}}]]}, 'no text "contents"'),
        (b"[" * 100_000, "sent no JSON"),
        (b'{"result": [[{"document": {"contents": "x"}, "score": NaN}]]}', "not 'nan'"),
        (b'{"result": [[{"document": {"contents": "x"}, "score": 1e999}]]}', "not 'inf'"),
        ({"result": [[{"document": {"contents": "x"}, "score": 10**400}]]}, "a finite number"),
        ({"result": [[{"document": {"contents": "x"}, "score": "9"}]]}, "a finite number, not '9'"),
        ({"result": [[{"document": {"contents": "x"}, "score": True}]]}, "not 'True'"),
    ],
)
def test_a_malformed_reply_names_the_field(
    server: Server, client: Any, reply: Any, message: str
) -> None:
    server.script = [(200, {}, reply)]
    with pytest.raises(SearchProtocolError, match=message):
        client().search(["q"], 3)
    assert len(server.seen) == 1


def test_it_travels_without_its_connections(server: Server, client: Any) -> None:
    search = client()
    assert pickle.loads(pickle.dumps(search)).search(["q"], 1) == search.search(["q"], 1)
    assert pickle.loads(pickle.dumps(search)).url == search.url
    assert copy.deepcopy(search) is search
    search.close()
    assert search.search(["q"], 1)
    assert open_search(server.url, "", 5.0) is open_search(server.url, "", 5.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_opens_connections_of_its_own(server: Server, client: Any) -> None:
    search = client()
    search.search(["q"], 1)
    mine = search._client
    search._owner = -2  # as a child of this process would find it
    assert search.search(["q"], 1)
    assert search._client is not mine
    mine.close()


def test_threads_share_one_client(server: Server, client: Any) -> None:
    search = client()
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(search.search(["q"] * 2, 1))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(reply == found[0] for reply in found)
