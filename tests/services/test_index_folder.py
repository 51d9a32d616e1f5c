"""An index on disk is the index in memory, or it is refused."""

import hashlib
import json
import os
import subprocess
import sys
import threading

import pytest

from searchqa_services.search.engine.bm25 import BM25Index, BM25Params
from searchqa_services.search.engine.documents import DiskDocuments
from searchqa_services.search.engine.errors import IndexExists, IndexMismatch, IndexMissing
from searchqa_services.search.engine.fingerprint import check_files, read_manifest
from searchqa_services.search.engine.verify import verify_index


@pytest.fixture
def folder(small_index, tmp_path):
    """The small index, saved."""
    small_index.save(tmp_path / "index")
    return tmp_path / "index"


def edit(folder, change):
    """Change the manifest of an index."""
    path = folder / "manifest.json"
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body))


def test_loaded_equals_saved(small_index, folder):
    loaded = BM25Index.load(folder)
    queries = ["w0 w1", "é 7", "title3", "", "unknown"]
    assert loaded.search(queries, 20) == small_index.search(queries, 20)
    assert loaded.fingerprint == small_index.fingerprint
    assert loaded.size == small_index.size
    assert loaded.params == small_index.params
    assert list(loaded.documents) == list(small_index.documents)


def test_saving_a_loaded_index_gives_the_same_bytes(folder, tmp_path):
    BM25Index.load(folder).save(tmp_path / "again")
    for path in folder.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


def test_arrays_are_mapped_not_read(folder):
    scores = BM25Index.load(folder).postings.scores
    assert not scores.flags.owndata
    assert not scores.flags.writeable


def test_parameters_are_in_the_fingerprint(small_corpus):
    changes = ({}, {"k1": 1.2}, {"b": 0.7}, {"method": "atire"}, {"stopwords": None})
    indexes = [BM25Index.from_documents(small_corpus, BM25Params(**c)) for c in changes]
    assert len({index.fingerprint for index in indexes}) == len(changes)
    reordered = BM25Index.from_documents(small_corpus[::-1])
    assert reordered.fingerprint != indexes[0].fingerprint


def test_the_corpus_hash_is_that_of_the_file(folder):
    digest = hashlib.sha256((folder / "documents.jsonl").read_bytes()).hexdigest()
    assert read_manifest(folder).corpus["sha256"] == digest


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda m: m.update(format=2), "has format 2, this program reads format 1"),
        (lambda m: m["tokenizer"].update(version=9), "another tokenizer: its version is 9"),
        (lambda m: m["tokenizer"].update(name="stems"), "another tokenizer: its name is 'stems'"),
        (lambda m: m["tokenizer"].update(stopwords="de"), "another tokenizer: its stopwords"),
        (
            lambda m: m["tokenizer"].update(stopwords=None),
            "another tokenizer: its stopwords_sha256",
        ),
        (lambda m: m["tokenizer"].update(stemmer="porter"), "another tokenizer: its stemmer"),
        (lambda m: m["tokenizer"].update(lowercase=False), "tokenizer no longer matches"),
        (lambda m: m["bm25"].update(k1=1.2), "bm25 no longer matches"),
        (lambda m: m.update(bm25s="0.2.0"), "bm25s no longer matches"),
        (lambda m: m["corpus"].update(sha256="0" * 64), "corpus no longer matches"),
        (lambda m: m.update(fingerprint="0" * 32), "fingerprint no longer matches"),
        (lambda m: m.pop("digests"), "not an index manifest"),
        (lambda m: m.update(digests=3), "not an index manifest"),
        (lambda m: m.update(surprise=1), "not an index manifest"),
        (lambda m: m["files"].pop("scores.npy"), "must give bytes and sha256 of exactly"),
        (lambda m: m.update(files={}), "must give bytes and sha256 of exactly"),
        (lambda m: m.update(files=[]), "must give bytes and sha256 of exactly"),
        (lambda m: m["files"].update(extra={"bytes": 0, "sha256": ""}), "of exactly documents"),
        (lambda m: m["files"]["scores.npy"].pop("sha256"), "must give bytes and sha256"),
        (lambda m: m["files"]["scores.npy"].update(bytes="9"), "must give bytes and sha256"),
        (lambda m: m["files"].update({"scores.npy": 3}), "must give bytes and sha256"),
    ],
)
def test_a_foreign_or_edited_manifest_is_refused_by_name(folder, change, complaint):
    edit(folder, change)
    with pytest.raises(IndexMismatch, match=complaint):
        BM25Index.load(folder)


def test_damaged_folders_are_refused(folder):
    (folder / "manifest.json").write_text("{")
    with pytest.raises(IndexMismatch, match="not an index manifest"):
        BM25Index.load(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(IndexMissing, match="holds no index"):
        BM25Index.load(folder)


def test_files_that_changed_are_named(folder):
    path = folder / "scores.npy"
    original = path.read_bytes()
    path.write_bytes(original[:-4])
    with pytest.raises(IndexMismatch, match=r"scores.npy has \d+ bytes, its manifest says"):
        BM25Index.load(folder)
    path.write_bytes(original[:-4] + b"\0\0\0\1")
    check_files(folder, read_manifest(folder))
    with pytest.raises(IndexMismatch, match=r"scores.npy was damaged"):
        verify_index(folder)
    path.unlink()
    with pytest.raises(IndexMismatch, match=r"lacks its file scores.npy"):
        BM25Index.load(folder)


@pytest.mark.parametrize("name", ["vocabulary.json", "starts.npy", "offsets.npy"])
def test_a_file_of_the_right_size_and_the_wrong_form_is_refused(folder, name):
    (folder / name).write_bytes(b"\x80" * (folder / name).stat().st_size)
    with pytest.raises(IndexMismatch, match="is damaged"):
        BM25Index.load(folder)


def test_an_index_finds_its_own_titles(folder):
    report = verify_index(folder)
    assert (report.documents, report.sampled) == (300, 50)
    assert report.found >= 0.7 * report.sampled  # several documents share a title here


def test_real_titles_find_their_documents(data, tmp_path):
    from searchqa_services.search.engine.build import build_index

    build_index(data / "hotpot_train_100" / "corpus.jsonl.gz", tmp_path / "index")
    report = verify_index(tmp_path / "index")
    assert report.found >= 0.95 * report.sampled


def test_an_existing_folder_is_not_overwritten_unasked(small_index, folder, tmp_path):
    with pytest.raises(IndexExists, match="--overwrite"):
        small_index.save(folder)
    small_index.save(folder, overwrite=True)
    assert BM25Index.load(folder).size == small_index.size
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(IndexExists, match="not an index"):
            small_index.save(precious, overwrite=overwrite)
    assert (precious / "thesis.txt").exists()
    (tmp_path / "empty").mkdir()
    small_index.save(tmp_path / "empty")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "index", "precious"]


@pytest.mark.parametrize(
    "manifest",
    [
        '{"name": "an extension", "version": "1"}',
        '{"files": {"thesis.txt": 1}}',
        '{"fingerprint": 1, "files": {"thesis.txt": 1}, "digests": {}}',
        '{"files": ["thesis.txt"], "fingerprint": "x", "digests": {}}',
        "[]",
        "{",
        "[" * 100_000,
    ],
)
def test_a_folder_with_a_manifest_of_another_kind_is_never_replaced(
    small_index, tmp_path, manifest
):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    (precious / "manifest.json").write_text(manifest)
    with pytest.raises(IndexExists, match="not an index"):
        small_index.save(precious, overwrite=True)
    assert (precious / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("make", [lambda p: p.write_text("mine"), lambda p: p.mkdir()])
def test_an_index_that_holds_something_else_is_not_replaced(small_index, folder, make):
    make(folder / "notes")
    with pytest.raises(IndexExists, match="not only an index"):
        small_index.save(folder, overwrite=True)
    assert (folder / "notes").exists()


def test_an_index_of_another_format_can_be_replaced(small_index, folder):
    edit(folder, lambda m: m.update(format=0))
    small_index.save(folder, overwrite=True)
    assert BM25Index.load(folder).size == small_index.size


def test_what_appears_under_the_name_during_a_build_is_kept(write_jsonl, tmp_path):
    from searchqa_services.search.engine.build import build_index

    out = tmp_path / "index"

    def interfere(stage, documents):
        out.mkdir(exist_ok=True)
        (out / "thesis.txt").write_text("years of work")

    with pytest.raises(IndexExists, match="not an index"):
        build_index(write_jsonl([{"id": 1, "text": "a b"}]), out, progress=interfere)
    assert (out / "thesis.txt").exists()


def test_only_leftovers_of_the_same_destination_are_removed(small_index, tmp_path):
    other = tmp_path / ".index1.building-x"
    other.mkdir()
    small_index.save(tmp_path / "index[1]")
    assert other.exists()


@pytest.mark.parametrize("stage", ["read", "score", "write"])
def test_a_killed_build_leaves_no_index_and_the_next_build_cleans_up(write_jsonl, tmp_path, stage):
    corpus = write_jsonl([{"id": i, "text": f"word{i % 9} common"} for i in range(1500)])
    program = (
        "import os, signal, sys\n"
        "from searchqa_services.search.engine.build import build_index\n"
        f"kill = lambda stage, n: stage == {stage!r} and os.kill(os.getpid(), signal.SIGKILL)\n"
        "build_index(sys.argv[1], sys.argv[2], progress=kill)\n"
    )
    arguments = [sys.executable, "-c", program, str(corpus), str(tmp_path / "index")]
    assert subprocess.run(arguments, timeout=60).returncode == -9
    assert not (tmp_path / "index").exists()
    assert len(list(tmp_path.glob(".index.building-*"))) == 1

    from searchqa_services.search.engine.build import build_index

    build_index(corpus, tmp_path / "index")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["corpus.jsonl", "index"]
    assert BM25Index.load(tmp_path / "index").size == 1500


def test_documents_are_read_right_from_many_threads(folder, small_corpus):
    store = DiskDocuments(folder)
    wrong = []

    def work(start):
        for i in range(4000):
            place = (start * 37 + i * 101) % len(store)
            if store[place] != small_corpus[place]:
                wrong.append(place)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_store_is_a_sequence(folder, small_corpus):
    store = DiskDocuments(folder)
    assert store[2:5] == small_corpus[2:5]
    assert store[-1] == small_corpus[-1]
    with pytest.raises(IndexError, match="document 300 of 300"):
        store[300]


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_an_index_can_be_read_by_other_users(folder):
    assert folder.stat().st_mode & 0o055 == 0o055
