"""Inputs on which search services are known to have gone wrong, with the right answers."""

import copy
import subprocess
import sys
import threading
import warnings

import pytest

from searchqa_services.search.engine.bm25 import BM25Index, BM25Params
from searchqa_services.search.engine.documents import Document
from searchqa_services.search.engine.errors import CorpusError, InvalidParameter


@pytest.fixture
def ids(documents_of):
    """Return a function: texts, a query and k in, the places found out."""

    def search(texts, query, k=10):
        index = BM25Index.from_documents(documents_of(*texts))
        return [int(hit.document.id) for hit in index.search([query], k)[0]]

    return search


ENGLISH = ("the cat sat here", "a dog of war", "rivers run deep")


@pytest.mark.parametrize(
    "query", ["", " \n", "?!", "the of is", "X", "zzzz qqqq", "日本", "\ud800"]
)
def test_a_query_without_a_known_word_finds_nothing(ids, query):
    assert ids(ENGLISH, query) == []


def test_more_hits_than_documents_is_fine(ids):
    assert ids(("fox one", "fox two", "fox three"), "fox", k=10) == [0, 1, 2]
    assert ids(("fox one", "fox two", "fox three"), "fox", k=10**9) == [0, 1, 2]


def test_top_k_zero_is_nothing_and_negative_an_error(small_index):
    assert small_index.search(["w0"], 0) == [[]]
    with pytest.raises(InvalidParameter, match="at least 0"):
        small_index.search(["w0"], -1)


def test_no_queries_no_lists(small_index):
    assert small_index.search([], 3) == []


def test_one_character_words_decide(ids):
    assert ids(("Vitamin C is sour", "Vitamin D is sun", "nothing else"), "Vitamin D")[0] == 1


def test_a_word_in_two_documents_scores_in_both(documents_of):
    index = BM25Index.from_documents(documents_of("foo", "dog", "baz", "quick god", "quick fox"))
    hits = index.search(["quick"], 5)[0]
    assert [hit.document.id for hit in hits] == ["3", "4"]
    assert hits[0].score == hits[1].score > 0


def test_words_are_matched_as_they_stand(ids):
    assert ids(("Hullport", "Italy", "Tanzania"), "Italy") == [1]


def test_ties_go_by_document_order(ids):
    texts = ["alpha beta"] * 3 + ["alpha gamma delta"]
    found = [ids(texts, "alpha beta", k) for k in (1, 2, 3, 4)]
    assert found == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]


@pytest.mark.parametrize("texts", [[], [""], ["the", "a"], ["?!"]])
def test_a_corpus_without_a_word_is_refused(documents_of, texts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CorpusError, match="not one word"):
            BM25Index.from_documents(documents_of(*texts))


def test_empty_documents_do_not_shift_the_others(ids):
    assert ids(("", "hello world", "", "hello"), "hello") == [3, 1]


def test_a_repeated_id_is_refused():
    with pytest.raises(CorpusError, match="repeats the id 'x'"):
        BM25Index.from_documents([Document("x", "", "a1"), Document("x", "", "b2")])


def test_unrelated_queries_have_different_best_hits(small_index):
    first, second = small_index.search(["title3", "title44"], 1)
    assert first[0].document.title == "title3"
    assert second[0].document.title == "title44"


def test_titles_are_searched_too():
    index = BM25Index.from_documents([Document("1", "Zorro", "a fox"), Document("2", "", "owl")])
    assert index.search(["zorro"], 3)[0][0].document.contents == '"Zorro"\na fox'


def test_text_that_utf8_cannot_spell_is_indexed_all_the_same():
    index = BM25Index.from_documents([Document("1", "bad \ud800", "good word")])
    assert index.search(["good"], 1)[0][0].document.title == "bad \ufffd"


def test_scores_are_python_floats(small_index):
    hit = small_index.search(["w1"], 1)[0][0]
    assert type(hit.score) is float
    assert type(hit.rank) is int


def test_eight_threads_find_what_one_finds(small_index):
    queries = [f"w{i} w{i + 1} title{i}" for i in range(40)]
    expected = small_index.search(queries, 5)
    answers = {}

    def work(name):
        answers[name] = [[small_index.search([q], 5)[0] for q in queries] for _ in range(10)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert all(answer == expected for rounds in answers.values() for answer in rounds)


def test_an_index_in_settings_is_shared_not_copied(small_index):
    assert copy.deepcopy({"index": small_index})["index"] is small_index


@pytest.mark.parametrize(
    "wrong",
    [{"k1": -1}, {"k1": float("nan")}, {"b": 1.5}, {"method": "bm25+"}, {"stopwords": "de"}],
    ids=str,
)
def test_parameters_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidParameter, match=next(iter(wrong))):
        BM25Params(**wrong)


def test_searching_needs_neither_a_web_framework_nor_the_network():
    program = """
import sys
def forbid(event, arguments):
    assert not event.startswith("socket."), event
sys.addaudithook(forbid)
from searchqa_services.search.engine.bm25 import BM25Index, Document
index = BM25Index.from_documents([Document("1", "T", "some words")])
assert index.search(["words"], 1)[0]
heavy = {"fastapi", "pydantic", "uvicorn", "prometheus_client", "torch"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)


@pytest.mark.slow
def test_memory_stays_level_over_100_000_queries(small_index):
    resource = pytest.importorskip("resource", reason="needs POSIX resource usage")

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    queries = [f"w{i % 60} title{i % 90}" for i in range(10_000)]
    for query in queries:
        small_index.search([query], 3)
    before = peak()
    for _ in range(9):
        for query in queries:
            small_index.search([query], 3)
    assert peak() < 1.05 * before
