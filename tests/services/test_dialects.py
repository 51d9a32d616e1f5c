"""Requests in every accepted spelling, and the sentence each wrong one gets."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchqa_services.search.dialects import JSON, choose
from searchqa_services.search.engine.documents import Document
from searchqa_services.search.engine.protocol import Hit
from searchqa_services.search.schema import Limits, Malformed

LIMITS = Limits(default_top_k=3, max_top_k=100, max_hits=1000, max_queries=4, max_query_chars=50)
HITS = [Hit(Document("1", 'The "T"', "text\nmore é"), 2.5, 0)]


def parse(body):
    return JSON.parse(body if isinstance(body, bytes) else json.dumps(body).encode(), LIMITS)


@pytest.mark.parametrize(
    ("body", "queries", "top_k", "with_scores", "single"),
    [
        ({"queries": ["a", "b"], "topk": 5, "return_scores": True}, ("a", "b"), 5, True, False),
        ({"queries": ["a"], "topk": 5, "return_scores": False}, ("a",), 5, False, False),
        ({"queries": ["a"]}, ("a",), 3, False, False),
        ({"queries": []}, (), 3, False, False),
        ({"queries": ["", "a"], "topk": None}, ("", "a"), 3, False, False),
        ({"queries": ["a"], "topk": 0, "return_scores": None}, ("a",), 3, False, False),
        ({"query": "a", "topk": 2, "return_scores": True}, ("a",), 2, True, True),
        ({"query": "a", "topk": 2, "return_scores": False}, ("a",), 2, False, True),
        ({"query": "a", "top_k": 7}, ("a",), 7, True, True),
        ({"query": "a"}, ("a",), 3, True, True),
        ({"query": ["a", "b"], "top_n": 2, "return_score": False}, ("a", "b"), 2, False, False),
        ({"queries": ["a"], "top_k": 2}, ("a",), 2, True, False),
        ({"queries": ["a"], "query": None, "k": 1, "model": "x"}, ("a",), 1, False, False),
    ],
)
def test_spellings(body, queries, top_k, with_scores, single):
    request = parse(body)
    assert request.queries == queries
    assert request.top_k == top_k
    assert request.with_scores is with_scores
    assert request.single is single


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "The body is empty"),
        (b"queries=a", "The body is not JSON"),
        (b"\x81\xa5query\xa1a", "The body is not JSON"),
        (b"[" * 100_000, "The body is not JSON"),
        (b'["a"]', "must be a JSON object"),
        (b'"a"', "must be a JSON object"),
        ({}, "Give either 'queries' or 'query'"),
        ({"queries": ["a"], "query": "a"}, "Give either 'queries' or 'query'"),
        ({"queries": "a"}, "'queries' must be a list of strings"),
        ({"queries": ["a", None]}, "'queries' must be a list of strings"),
        ({"query": 3}, "'query' must be a list of strings"),
        ({"queries": ["a"] * 5}, "5 queries in one request; the limit is 4"),
        ({"queries": ["a"], "topk": -1}, "'topk' must be a whole number of at least 0"),
        ({"queries": ["a"], "topk": "3"}, "'topk' must be a whole number"),
        ({"queries": ["a"], "topk": 2.0}, "'topk' must be a whole number"),
        ({"queries": ["a"], "topk": "\ud800"}, "'topk' must be a whole number.*\ufffd"),
        ({"queries": ["a"], "return_scores": "\udfff"}, "must be true or false, not .\ufffd"),
        ({"queries": ["a"], "topk": True}, "'topk' must be a whole number"),
        ({"queries": ["a"], "topk": 1, "top_k": 2}, "Give only one of 'topk' and 'top_k'"),
        ({"queries": ["a"], "return_scores": "yes"}, "'return_scores' must be true or false"),
    ],
)
def test_a_wrong_request_gets_a_sentence(body, sentence):
    with pytest.raises(Malformed, match=sentence) as caught:
        parse(body)
    assert len(str(caught.value)) < 300


def test_answers_have_python_numbers_and_contents():
    scored = json.loads(JSON.render(parse({"queries": ["a"], "return_scores": True}), [HITS]))
    document = {
        "id": "1",
        "contents": '"The "T""\ntext\nmore é',
        "title": 'The "T"',
        "text": "text\nmore é",
    }
    assert scored == {"result": [[{"document": document, "score": 2.5}]]}
    bare = json.loads(JSON.render(parse({"queries": ["a"]}), [HITS]))
    assert bare == {"result": [[document]]}


def test_a_single_query_is_answered_nested_and_flat():
    answer = json.loads(JSON.render(parse(b'{"query": "x \\ud800"}'), [HITS]))
    assert answer["result"] == [answer["results"]]
    assert answer["num_results"] == 1
    assert answer["query"] == "x \ufffd"


def test_no_queries_no_lists():
    assert JSON.render(parse({"queries": []}), []) == b'{"result": []}'


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
keys = st.sampled_from(["queries", "query", "topk", "top_k", "k", "return_scores", "other"])


@settings(deadline=None)
@given(
    st.binary(max_size=80)
    | st.dictionaries(keys, json_values).map(lambda d: json.dumps(d).encode())
)
def test_every_body_is_a_request_or_malformed(body):
    try:
        request = choose("application/json", body).parse(body, LIMITS)
    except Malformed:
        return
    assert all(isinstance(query, str) for query in request.queries)
    assert request.top_k >= 1
