"""What the clients of other projects send and read, replayed against a live server.

Each function is the least that client does with the wire: its request as it sends it, and its way
of reading the answer.
"""

import pytest


def title_and_text(contents):
    """Split contents as all of them do."""
    lines = contents.split("\n")
    return lines[0], "\n".join(lines[1:])


def search_r1(http, queries, topk):
    """Post all active queries of a step; read without a look at the status."""
    payload = {"queries": queries, "topk": topk, "return_scores": True}
    result = http.post("/retrieve", json=payload).json()["result"]
    return [[title_and_text(item["document"]["contents"]) for item in hits] for hits in result]


def verl(http, queries, topk):
    """Check the status, then read scores as well."""
    payload = {"queries": queries, "topk": topk, "return_scores": True}
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    response = http.post("/retrieve", json=payload, headers=headers)
    response.raise_for_status()
    result = response.json().get("result", [])
    assert all(isinstance(item["score"], float) for hits in result for item in hits)
    return [[title_and_text(item["document"]["contents"]) for item in hits] for hits in result]


def skyrl(http, query, topk):
    """Send one query; the result is nested all the same."""
    payload = {"query": query, "topk": topk, "return_scores": True}
    response = http.post("/retrieve", json=payload)
    response.raise_for_status()
    return [title_and_text(item["document"]["contents"]) for item in response.json()["result"][0]]


def rllm(http, query, top_k):
    """Ask for health first; read ``results``, flat, with scores."""
    assert http.get("/health").status_code == 200
    response = http.post("/retrieve", json={"query": query, "top_k": top_k})
    assert response.status_code == 200
    found = response.json()
    assert found["num_results"] == len(found["results"])
    assert all(isinstance(item["score"], float) for item in found["results"])
    return [title_and_text(item["document"]["contents"]) for item in found["results"]]


def slime(http, query, topk):
    """Ask for bare documents, one query at a time."""
    payload = {"queries": [query], "topk": topk, "return_scores": False}
    (hits,) = http.post("/retrieve", json=payload).json()["result"]
    return [title_and_text(document["contents"]) for document in hits]


QUERIES = ["w0 w1", "title3", "é 日本", ""]


@pytest.fixture
def expected(small_index):
    """What each query must give, as (title line, text)."""
    results = small_index.search(QUERIES, 4)
    return [[(f'"{h.document.title}"', h.document.text) for h in hits] for hits in results]


@pytest.mark.parametrize("client", [search_r1, verl])
def test_batched_clients(live, expected, client):
    assert client(live, QUERIES, 4) == expected
    assert client(live, QUERIES[:1], 4) == expected[:1]


@pytest.mark.parametrize("client", [skyrl, rllm, slime])
def test_single_query_clients(live, expected, client):
    assert [client(live, query, 4) for query in QUERIES] == expected


def test_search_r1_posts_an_empty_list_when_nobody_searches(live):
    assert search_r1(live, [], 3) == []


def test_two_bare_queries_are_not_mixed_up(live, small_index):
    payload = {"queries": ["w0", "title3"], "topk": 3, "return_scores": False}
    result = live.post("/retrieve", json=payload).json()["result"]
    expected = small_index.search(["w0", "title3"], 3)
    assert [[d["id"] for d in hits] for hits in result] == [
        [h.document.id for h in hits] for hits in expected
    ]
