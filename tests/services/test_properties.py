"""What holds for every corpus and every query."""

from hypothesis import given, settings
from hypothesis import strategies as st

from searchqa_services.search.engine.bm25 import BM25Index
from searchqa_services.search.engine.documents import Document

word = st.sampled_from(["ash", "birch", "cedar", "d", "7", "é"])
text = st.lists(word, min_size=1, max_size=6).map(" ".join)
corpora = st.lists(text, min_size=1, max_size=40).map(
    lambda texts: [Document(f"{i}", "", t) for i, t in enumerate(texts)]
)


@settings(deadline=None, max_examples=60)
@given(corpora, text, st.integers(1, 45))
def test_the_first_k_are_the_same_for_every_k(documents, query, k):
    index = BM25Index.from_documents(documents)
    everything = index.search([query], len(documents) + 5)[0]
    assert index.search([query], k)[0] == everything[:k]


@settings(deadline=None, max_examples=60)
@given(corpora, text)
def test_order_is_score_then_document(documents, query):
    hits = BM25Index.from_documents(documents).search([query], 100)[0]
    keys = [(-hit.score, int(hit.document.id)) for hit in hits]
    assert keys == sorted(keys)
    assert all(hit.score > 0 for hit in hits)
    words = set(query.split())
    matching = {d.id for d in documents if words & set(d.text.split())}
    assert {hit.document.id for hit in hits} == matching


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text(max_size=60), max_size=4), st.integers(0, 8))
def test_any_text_is_a_query(small_index, queries, k):
    batch = small_index.search(queries, k)
    assert batch == [small_index.search([query], k)[0] for query in queries]
    assert all(len(hits) <= k for hits in batch)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=10))
def test_any_text_is_a_document(texts):
    documents = [Document(str(i), text, text) for i, text in enumerate(texts)]
    index = BM25Index.from_documents([*documents, Document("last", "", "anchor")])
    assert index.search(["anchor"], 20)[0][-1].document.text
    assert index.size == len(texts) + 1


@settings(deadline=None, max_examples=30)
@given(corpora, corpora)
def test_equal_corpora_and_only_they_have_equal_fingerprints(one, other):
    a, b = BM25Index.from_documents(one), BM25Index.from_documents(other)
    assert (a.fingerprint == b.fingerprint) == (one == other)
