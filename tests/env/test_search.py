from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest

from searchqa.errors import ConfigError
from searchqa.search import EmbeddedSearch, SearchBackend, open_search
from searchqa_services.search.engine.bm25 import BM25Index, Document

DEMO = "demo:train?passages=1000"
CORPUS = [
    {"id": "a", "title": "Dune", "text": "A novel by Frank Herbert."},
    {"id": "b", "contents": '"Emma"\nA novel by Jane Austen.'},
]


def test_hits_carry_id_contents_and_score(tiny_search: EmbeddedSearch) -> None:
    first, nothing = tiny_search.search(["who wrote dune", "zzzz"], 2)
    assert (first[0].id, nothing) == ("p2", [])
    assert first[0].contents.startswith('"Dune (novel)"\nDune is')
    assert first[0].score > 0
    assert len(first) <= 2
    assert isinstance(tiny_search, SearchBackend)
    assert tiny_search.fingerprint


def test_the_demo_index_is_built_once_and_travels_as_its_name() -> None:
    search = open_search("embedded", DEMO, 30.0)
    assert open_search("embedded", "demo:test?passages=1000&hops=2", 30.0) is search
    assert pickle.loads(pickle.dumps(search)) is search
    assert len(pickle.dumps(search)) < 500
    assert copy.deepcopy(search) is search
    assert open_search("embedded", "demo:train?passages=1001", 30.0) is not search


def test_every_demo_passage_is_found_by_its_title() -> None:
    from searchqa.questions import demo_world

    search = open_search("embedded", DEMO, 30.0)
    passages = demo_world(passages=1000).passages[::20]
    found = search.search([p.title for p in passages], 3)
    ids = [{hit.id for hit in hits} for hits in found]
    assert sum(p.id in i for p, i in zip(passages, ids, strict=True)) >= 0.95 * len(passages)


def test_a_corpus_file_and_an_index_folder(tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in CORPUS))
    by_file = open_search(f"embedded:{corpus}", "", 30.0)
    index = BM25Index.from_documents(
        [
            Document("a", "Dune", "A novel by Frank Herbert."),
            Document("b", "Emma", "A novel by Jane Austen."),
        ]
    )
    index.save(tmp_path / "index")
    by_folder = open_search(f"embedded:{tmp_path / 'index'}", "file.jsonl", 30.0)
    assert by_file.search(["austen novel"], 2) == by_folder.search(["austen novel"], 2)
    assert by_file.fingerprint == by_folder.fingerprint
    assert pickle.loads(pickle.dumps(by_folder)).fingerprint == by_folder.fingerprint


def test_an_index_of_ones_own_pickles_whole() -> None:
    search = EmbeddedSearch(BM25Index.from_documents([Document("a", "T", "word")]))
    backend = pickle.loads(pickle.dumps(search))
    assert backend.search(["word"], 1) == search.search(["word"], 1)


def test_a_backend_is_taken_as_it_is(scripted: type) -> None:
    backend = scripted()
    assert open_search(backend, "", 30.0) is backend


@pytest.mark.parametrize(
    ("name", "questions", "message"),
    [
        ("embedded", "file.jsonl", "questions are not from it; use 'embedded:PATH'"),
        ("embedded", "", "questions are not from it"),
        (
            "search_url",
            "",
            "search='search_url' is unknown; use 'embedded', 'embedded:PATH'",
        ),
        ("", "", "is unknown"),
        ("ftp://x", "", "is unknown"),
        ("embedded:/no/such/file", "", "search='embedded:/no/such/file' cannot be opened"),
    ],
)
def test_a_name_that_means_nothing_is_refused(name: str, questions: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_search(name, questions, 30.0)


def test_a_broken_corpus_names_file_and_line(tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text(json.dumps(CORPUS[0]) + "\n{\n")
    with pytest.raises(ConfigError, match=r"cannot be opened: .*c\.jsonl line 2"):
        open_search(f"embedded:{corpus}", "", 30.0)


def test_a_folder_that_is_no_index(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be opened"):
        open_search(f"embedded:{tmp_path}", "", 30.0)
