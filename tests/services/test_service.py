"""The live service: ready when it is, refusing when it must, the same as the index always."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from searchqa_services.search.app import FINGERPRINT_HEADER, create_app
from searchqa_services.search.engine.bm25 import BM25Index
from searchqa_services.search.settings import Settings


class GatedIndex:
    """An index whose searches wait for a gate."""

    fingerprint = "gated"
    size = 3

    def __init__(self):
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)

    def search(self, queries, top_k):
        self.entered.release()
        assert self.gate.wait(20)
        return [[] for _ in queries]


class BrokenIndex(GatedIndex):
    """An index that fails."""

    def search(self, queries, top_k):
        raise RuntimeError("the disk is gone")


def test_every_answer_names_the_index(live, small_index):
    answer = live.post("/retrieve", json={"queries": ["w0"]})
    assert answer.headers[FINGERPRINT_HEADER] == small_index.fingerprint
    assert answer.headers["content-type"] == "application/json"


def test_ready_describes_the_index(live, small_index):
    assert live.get("/health").json() == {"status": "ok"}
    ready = live.get("/ready").json()
    assert ready["fingerprint"] == small_index.fingerprint
    assert ready["size"] == small_index.size
    assert ready["tokenizer"] == dict(small_index.manifest.tokenizer)


def test_served_hits_are_the_index_hits(live, small_index):
    queries = [f"w{i} title{i}" for i in range(30)] + ["", "?!", "日本", "x \ud800 w1"]
    body = {"queries": queries, "topk": 7, "return_scores": True}
    result = live.post("/retrieve", content=_json(body)).json()["result"]
    for hits, expected in zip(result, small_index.search(queries, 7), strict=True):
        assert [(h["document"]["id"], h["score"]) for h in hits] == [
            (h.document.id, h.score) for h in expected
        ]


def _json(body):
    return json.dumps(body).encode()  # spells lone surrogates, which httpx's encoder cannot


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"{", "The body is not JSON"),
        (b'{"queries": ["a"], "topk": -1}', "'topk' must be a whole number"),
        (b'{"topk": 3}', "Give either"),
    ],
)
def test_malformed_is_422_with_a_sentence(live, body, sentence):
    answer = live.post("/retrieve", content=body)
    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]
    assert answer.json()["detail"].endswith(".")


def test_limits(serving, small_index):
    with serving(small_index, max_top_k=10, max_body_bytes=200, max_query_chars=5) as http:
        assert http.post("/retrieve", json={"queries": ["w0"], "topk": 10}).status_code == 200
        too_many = http.post("/retrieve", json={"queries": ["w0"], "topk": 11})
        assert (too_many.status_code, too_many.json()["detail"]) == (
            422,
            "At most 10 hits per query, not 11.",
        )
        too_long = http.post("/retrieve", json={"queries": ["w" * 300]})
        assert too_long.status_code == 413
        assert "longer than 200 bytes" in too_long.json()["detail"]
        cut = http.post("/retrieve", json={"queries": ["w0 w1 title3"]}).json()["result"]
        assert cut == http.post("/retrieve", json={"queries": ["w0 w1"]}).json()["result"]
        assert "searchqa_search_queries_truncated_total 1.0" in http.get("/metrics").text


def test_one_request_can_only_ask_for_so_many_hits(serving, small_index):
    with serving(small_index, max_hits=600) as http:
        ask = lambda **body: http.post("/retrieve", json=body)  # noqa: E731
        assert ask(queries=["w0"] * 200, topk=3).status_code == 200
        assert ask(queries=["w0"] * 2, topk=10**9).status_code == 200  # 300 documents
        refused = ask(queries=["w0"] * 201, topk=3)
        assert (refused.status_code, refused.json()["detail"]) == (
            422,
            "201 queries with 3 hits each ask for more than 600 hits; send several requests.",
        )
    assert Settings().max_queries * Settings().default_top_k <= Settings().max_hits


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["\ud800", "w0", 10**30, [], {}]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
names = st.sampled_from(["queries", "query", "topk", "top_k", "k", "return_scores", "other"])
bodies = json_values | st.dictionaries(names, json_values, max_size=4)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies)
@example({"queries": ["x"], "topk": "\ud800"})
@example({"queries": ["x"], "return_scores": ["\udc00"]})
def test_every_json_body_is_answered_or_refused(live, body):
    status = live.post("/retrieve", content=_json(body)).status_code
    assert status in (200, 503) or 400 <= status < 500


@pytest.mark.parametrize("depth", [100, 900, 990, 5000])
def test_a_deep_value_is_refused_with_a_sentence(live, depth):
    deep = "[" * depth + "]" * depth
    answer = live.post("/retrieve", content=f'{{"queries": ["x"], "topk": {deep}}}'.encode())
    assert answer.status_code == 422
    assert answer.json()["detail"].endswith(".")


def test_more_hits_than_documents_is_fine(serving, documents_of):
    index = BM25Index.from_documents(documents_of("fox one", "fox two", "fox three"))
    with serving(index, max_top_k=5) as http:
        body = {"queries": ["fox"], "topk": 10**12}
        assert len(http.post("/retrieve", json=body).json()["result"][0]) == 3


def test_overload_is_503_and_health_answers_meanwhile(serving):
    index = GatedIndex()
    with serving(index, threads=2, queue_size=3, retry_after_s=7) as http:
        with ThreadPoolExecutor(5) as pool:
            waiting = [
                pool.submit(http.post, "/retrieve", json={"queries": ["a"]}) for _ in range(5)
            ]
            for _ in range(2):
                assert index.entered.acquire(timeout=10)
            _wait_until(lambda: "searchqa_search_in_flight 5.0" in http.get("/metrics").text)
            refused = http.post("/retrieve", json={"queries": ["a"]})
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "7"
            assert "Overloaded" in refused.json()["detail"]
            start = time.perf_counter()
            assert http.get("/health").status_code == 200
            assert time.perf_counter() - start < 1
            index.gate.set()
            assert [future.result().status_code for future in waiting] == [200] * 5
        assert http.post("/retrieve", json={"queries": ["a"]}).status_code == 200
        metrics = http.get("/metrics").text
    assert 'searchqa_search_requests_total{status="200"} 6.0' in metrics
    assert 'searchqa_search_requests_total{status="503"} 1.0' in metrics


def _wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_many_clients_get_what_one_gets(live, small_index):
    batches = [[f"w{i + j} title{i}" for j in range(8)] for i in range(64)]
    expected = [
        [[h.document.id for h in hits] for hits in small_index.search(batch, 3)]
        for batch in batches
    ]

    def ask(batch):
        result = live.post("/retrieve", json={"queries": batch, "topk": 3}).json()["result"]
        return [[document["id"] for document in hits] for hits in result]

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, batches)) == expected


def test_not_ready_until_loaded(serving, small_index, tmp_path, monkeypatch):
    small_index.save(tmp_path / "index")
    gate = threading.Event()
    load = BM25Index.load

    def slow(path):
        assert gate.wait(20)
        return load(path)

    monkeypatch.setattr(BM25Index, "load", slow)
    with serving(folder=tmp_path / "index") as http:
        assert http.get("/health").status_code == 200
        for answer in (http.get("/ready"), http.post("/retrieve", json={"queries": ["w0"]})):
            assert answer.status_code == 503
            assert "retry-after" in answer.headers
            assert answer.json()["detail"] == "The index is not loaded yet; try again."
        gate.set()
        _wait_until(lambda: http.get("/ready").status_code == 200)
        answer = http.post("/retrieve", json={"queries": ["w0"]})
        assert answer.headers[FINGERPRINT_HEADER] == small_index.fingerprint
        fingerprint = f'fingerprint="{small_index.fingerprint}"'
        assert f"index_documents{{{fingerprint}}} 300.0" in http.get("/metrics").text


def test_an_index_that_cannot_be_loaded_is_told(serving, tmp_path):
    with serving(folder=tmp_path) as http:
        _wait_until(lambda: "holds no index" in http.get("/ready").json()["detail"])
        assert http.get("/ready").status_code == 503
        assert http.get("/health").status_code == 200


def test_whatever_fails_while_loading_is_told(serving, tmp_path, monkeypatch):
    def fail(path):
        raise RuntimeError("no memory to map")

    monkeypatch.setattr(BM25Index, "load", fail)
    with serving(folder=tmp_path) as http:
        _wait_until(lambda: "no memory to map" in http.get("/ready").json()["detail"])
        assert http.get("/ready").status_code == 503


def test_a_real_fault_is_500_logged_and_counted(serving, caplog):
    with serving(BrokenIndex()) as http:
        answer = http.post("/retrieve", json={"queries": ["a"]})
        assert (answer.status_code, answer.json()["detail"]) == (
            500,
            "The search failed; the server's log says why.",
        )
        assert 'requests_total{status="500"} 1.0' in http.get("/metrics").text
    assert "the disk is gone" in caplog.text


def test_a_client_that_leaves_while_sending_harms_nobody(live):
    with socket.create_connection((live.base_url.host, live.base_url.port)) as broken:
        broken.sendall(b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
    assert live.post("/retrieve", json={"queries": ["w0"]}).status_code == 200


def test_other_methods_and_paths(live):
    assert live.get("/retrieve").status_code == 405
    assert live.get("/nowhere").status_code == 404
    schema = live.get("/openapi.json").json()
    assert "/retrieve" in schema["paths"]


def test_settings_come_from_the_environment(monkeypatch, small_index, tmp_path):
    small_index.save(tmp_path / "index")
    monkeypatch.setenv("SEARCHQA_INDEX", str(tmp_path / "index"))
    monkeypatch.setenv("SEARCHQA_DEFAULT_TOP_K", "9")
    found = create_app().state.service.settings
    assert found.index == tmp_path / "index"
    assert found.limits.default_top_k == 9
    assert found.host == "127.0.0.1"
