"""Every corpus form people have is read; every bad line is named."""

import gzip
import json
import re

import pytest

from searchqa_services.search.dialects import wire_document
from searchqa_services.search.engine.bm25 import BM25Index
from searchqa_services.search.engine.build import build_index
from searchqa_services.search.engine.corpus import read_corpus, split_contents
from searchqa_services.search.engine.errors import CorpusError


def test_the_two_forms_are_indexed_alike(write_jsonl, tmp_path):
    split = write_jsonl([{"id": "7", "title": 'The "Big" Sea', "text": "wet\nand salt"}], "a.jsonl")
    whole = write_jsonl([{"id": 7, "contents": '"The "Big" Sea"\nwet\nand salt'}], "b.jsonl")
    one, other = (build_index(path, tmp_path / path.stem) for path in (split, whole))
    assert one.fingerprint == other.fingerprint
    document = BM25Index.load(tmp_path / "b").documents[0]
    assert (document.id, document.title) == ("7", 'The "Big" Sea')


def test_gzip_and_blank_lines_and_other_keys(tmp_path):
    path = tmp_path / "corpus.gz"
    rows = [{"id": "a", "text": "no title", "url": 1}, {"id": "b", "title": "T", "text": ""}]
    path.write_bytes(gzip.compress("\n\n".join(map(json.dumps, rows)).encode()))
    numbers, documents = zip(*read_corpus(path), strict=True)
    assert numbers == (1, 3)
    assert [document.contents for document in documents] == ['""\nno title', '"T"\n']


def test_contents_of_one_line_are_text():
    assert split_contents("only text") == ("", "only text")
    assert split_contents("Plain title\ntext") == ("Plain title", "text")
    assert split_contents('"T"\r\ntext\r\n') == ("T", "text\r\n")
    assert split_contents("T\r\ntext") == ("T", "text")


SPELLINGS = ['"T"\ntext', "T\ntext", "one line", "", '"T"\r\ntext', 'a "b"\n', '"\nx', '""\nx']


@pytest.mark.parametrize("contents", [*SPELLINGS, "T\nlone \ud800"])
def test_contents_are_answered_as_they_are_stored(write_jsonl, tmp_path, contents):
    rows = [{"id": "1", "contents": contents}, {"id": "2", "contents": '"W"\nword'}]
    corpus = write_jsonl(rows)
    ((_, read), _) = read_corpus(corpus)
    fit = contents.replace("\ud800", "\ufffd")
    assert read.contents == fit
    assert (read.verbatim is None) == (fit == f'"{read.title}"\n{read.text}')
    built = build_index(corpus, tmp_path / "index")
    loaded = BM25Index.load(tmp_path / "index")
    assert loaded.documents[0] == read
    assert wire_document(loaded.documents[0])["contents"] == fit
    in_memory = BM25Index.from_documents(d for _, d in read_corpus(corpus))
    assert in_memory.fingerprint == built.fingerprint


def test_contents_beside_their_parts_are_kept_too(write_jsonl):
    rows = [{"id": "1", "title": "T", "text": "x", "contents": c} for c in ('"T"\nx', "T\nx")]
    assert [d.verbatim for _, d in read_corpus(write_jsonl(rows))] == [None, "T\nx"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b'{"id": "x", "text": "cut', "line 3 is not JSON"),
        (b"\xff\xfe\xfd", "line 3 is not JSON"),
        (b"[" * 100_000, "line 3 is not JSON"),
        (b'["x"]', "line 3 must be an object"),
        (b'{"id": "x"}', "line 3 needs 'text'"),
        (b'{"text": "no id"}', "line 3 needs an 'id'"),
        (b'{"id": "", "text": "t"}', "line 3 needs an 'id'"),
        (b'{"id": true, "text": "t"}', "line 3 needs an 'id'"),
        (b'{"id": 1.5, "text": "t"}', "line 3 needs an 'id'"),
        (b'{"id": "x", "text": null}', "line 3: 'text' must be a string, not null"),
        (b'{"id": "x", "title": 3, "text": "t"}', "line 3: 'title' must be a string"),
        (b'{"id": "x", "contents": ["t"]}', "line 3: 'contents' must be a string"),
        (b'{"id": 1, "text": "again"}', "line 3: document 2 repeats the id '1'"),
    ],
)
def test_a_bad_line_is_named_and_leaves_nothing(tmp_path, line, complaint):
    corpus = tmp_path / "c.jsonl"
    corpus.write_bytes(b'{"id": "1", "text": "fine"}\n{"id": "2", "text": "fine"}\n' + line + b"\n")
    with pytest.raises(CorpusError, match=re.escape(f"{corpus} {complaint}")):
        build_index(corpus, tmp_path / "index")
    assert [path.name for path in tmp_path.iterdir()] == ["c.jsonl"]


def test_a_missing_file_and_a_cut_archive_are_named(tmp_path):
    with pytest.raises(CorpusError, match="no corpus file"):
        list(read_corpus(tmp_path / "nowhere.jsonl"))
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(b'{"id": "1", "text": "fine"}\n' * 1000)[:-9])
    with pytest.raises(CorpusError, match="cannot be read after line"):
        list(read_corpus(path))


def test_a_corpus_without_words_is_refused(write_jsonl, tmp_path):
    with pytest.raises(CorpusError, match="not one word to index"):
        build_index(write_jsonl([{"id": "1", "text": "the of"}]), tmp_path / "index")


def test_empty_documents_are_warned_about(write_jsonl, tmp_path, caplog):
    corpus = write_jsonl([{"id": "1", "text": ""}, {"id": "2", "text": "hello world"}])
    manifest = build_index(corpus, tmp_path / "index")
    assert "1 of 2 documents have no word" in caplog.text
    assert manifest.corpus["empty"] == 1
    hits = BM25Index.load(tmp_path / "index").search(["hello"], 3)[0]
    assert [hit.document.id for hit in hits] == ["2"]


def test_progress_is_told(write_jsonl, tmp_path):
    seen = []
    rows = [{"id": i, "text": f"word{i}"} for i in range(2500)]
    build_index(write_jsonl(rows), tmp_path / "i", progress=lambda s, n: seen.append((s, n)))
    assert seen == [("read", 1000), ("read", 2000), ("score", 2500), ("write", 2500)]
