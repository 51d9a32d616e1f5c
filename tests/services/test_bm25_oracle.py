"""The kernel against the formula, written to be read, in double precision."""

import gzip
import json
import math
from collections import Counter

import bm25s
import numpy as np
import pytest

from searchqa_services.search.engine.bm25 import BM25Index, BM25Params
from searchqa_services.search.engine.documents import Document
from searchqa_services.search.engine.tokenizer import make_tokenizer

IDF = {
    "lucene": lambda n, df: math.log(1 + (n - df + 0.5) / (df + 0.5)),
    "robertson": lambda n, df: math.log(max(1, (n - df + 0.5) / (df + 0.5))),
    "atire": lambda n, df: math.log(n / df),
}


def reference(documents, params):
    """Return a function from a query to the score of every document."""
    tokenize = make_tokenizer(lowercase=params.lowercase, stopwords=params.stopwords)
    counts = [Counter(tokenize(f"{d.title}\n{d.text}")) for d in documents]
    lengths = [sum(count.values()) for count in counts]
    average = sum(lengths) / len(lengths)
    containing = Counter(word for count in counts for word in count)
    boost = params.k1 + 1 if params.method == "atire" else 1

    def score(query):
        totals = [0.0] * len(documents)
        for word in tokenize(query):
            if word not in containing:
                continue
            idf = IDF[params.method](len(documents), containing[word])
            for i, count in enumerate(counts):
                if word in count:
                    norm = params.k1 * (1 - params.b + params.b * lengths[i] / average)
                    totals[i] += idf * boost * count[word] / (norm + count[word])
        return totals

    return score


def assert_agrees(index, score, queries, k):
    """Every hit has its true score, and every rank the true k-th best score."""
    place = {document.id: i for i, document in enumerate(index.documents)}
    for query, hits in zip(queries, index.search(queries, k), strict=True):
        truth = score(query)
        best = sorted((s for s in truth if s > 1e-9), reverse=True)[:k]
        assert [hit.rank for hit in hits] == list(range(len(best)))
        assert [truth[place[hit.document.id]] for hit in hits] == pytest.approx(best, rel=1e-5)
        assert [hit.score for hit in hits] == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("k", [1, 3, 16, 17, 1000])
@pytest.mark.parametrize(
    "params",
    [
        BM25Params(),
        BM25Params(k1=0.9, b=0.4),
        BM25Params(k1=0, b=1),
        BM25Params(method="robertson"),
        BM25Params(method="atire", stopwords=None),
    ],
    ids=str,
)
def test_scores_and_ranks_are_the_formula(small_corpus, params, k):
    index = BM25Index.from_documents(small_corpus, params)
    queries = ["w0 w1", "w5 é 7", "title3 w2 w2 w2", "日本", "w59 unknown", "w0"]
    assert_agrees(index, reference(small_corpus, params), queries, k)


def test_scores_are_what_bm25s_retrieves(small_corpus, small_index):
    model = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    tokenize = make_tokenizer()
    corpus = [tokenize(f"{d.title}\n{d.text}") for d in small_corpus]
    model.index(corpus, show_progress=False)
    for query in ("w0 w1", "title3 w2", "w5 é 7"):
        theirs = model.get_scores(tokenize(query))
        ours = np.zeros(len(corpus), dtype=np.float32)
        for hit in small_index.search([query], len(corpus))[0]:
            ours[int(hit.document.id[1:])] = hit.score
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_real_questions_on_a_real_corpus(data):
    folder = data / "2wiki_1000"
    with gzip.open(folder / "corpus.jsonl.gz") as file:
        rows = [json.loads(line) for line in file]
    documents = [Document(row["id"], row["title"], row["text"]) for row in rows]
    index = BM25Index.from_documents(documents)
    with gzip.open(folder / "questions.jsonl.gz") as file:
        questions = [json.loads(line) for line in file]
    score = reference(documents, index.params)
    assert_agrees(index, score, [q["question"] for q in questions[:25]], 10)

    results = index.search([q["question"] for q in questions], 3)
    with_gold = sum(
        any(hit.document.id in q["gold_passage_ids"] for hit in hits)
        for q, hits in zip(questions, results, strict=True)
    )
    assert with_gold / len(questions) > 0.9
