"""The command line: what it prints, and one sentence with exit code 2 for every mistake."""

import json
import subprocess
import sys

import pytest

from searchqa_services.search.cli import main


@pytest.fixture
def corpus(write_jsonl):
    """A corpus file of three documents."""
    rows = [("Fox", "quick and red"), ("Owl", "quick at night"), ("Elk", "slow")]
    return write_jsonl([{"id": t, "title": t, "text": x} for t, x in rows])


@pytest.fixture
def built(corpus, tmp_path, capsys):
    """An index folder built by the command."""
    assert main(["index", "build", str(corpus), str(tmp_path / "index")]) == 0
    capsys.readouterr()
    return tmp_path / "index"


def test_build_says_what_it_built(corpus, tmp_path, capsys):
    assert (
        main(["index", "build", str(corpus), str(tmp_path / "i"), "--k1", "0.9", "--b", "0.4"]) == 0
    )
    out, err = capsys.readouterr()
    assert "3 documents in" in out
    assert json.loads((tmp_path / "i" / "manifest.json").read_text())["fingerprint"] in out
    assert err == "scoring: 3 documents\nwriting: 3 documents\n"


def test_info_verify_and_query(built, capsys):
    assert main(["index", "info", str(built)]) == 0
    assert json.loads(capsys.readouterr().out)["corpus"]["documents"] == 3
    assert main(["index", "verify", str(built)]) == 0
    assert "intact, 3 documents, 3 of 3 sampled titles" in capsys.readouterr().out
    assert main(["query", str(built), "quick", "--top-k", "1"]) == 0
    assert capsys.readouterr().out.startswith("1. Fox [Fox] 0.")
    assert main(["query", str(built), "unheard"]) == 0
    assert capsys.readouterr().out == "no hits\n"


def test_index_options_reach_the_manifest(corpus, tmp_path):
    options = ["--no-stopwords", "--case-sensitive", "--method", "atire"]
    assert main(["index", "build", str(corpus), str(tmp_path / "i"), *options]) == 0
    manifest = json.loads((tmp_path / "i" / "manifest.json").read_text())
    assert manifest["tokenizer"]["stopwords"] is None
    assert manifest["tokenizer"]["lowercase"] is False
    assert manifest["bm25"]["method"] == "atire"


def test_the_progress_line_is_for_terminals(corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["index", "build", str(corpus), str(tmp_path / "i")]) == 0
    assert "\r\033[Kscoring: 3 documents\r" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("index build nowhere.jsonl out", "there is no corpus file nowhere.jsonl"),
        ("index build {corpus} {built}", "exists; choose another name or pass --overwrite"),
        ("index build {corpus} {corpus}", "exists and is not an index"),
        ("index build {corpus} out --b 2", "b must lie between 0 and 1"),
        ("index build {corpus} out --method tfidf", "method must be one of lucene, robertson"),
        ("index build {bad} out", "line 2 is not JSON"),
        ("index info nowhere", "nowhere holds no index"),
        ("index verify nowhere", "nowhere holds no index"),
        ("query nowhere text", "nowhere holds no index"),
        ("query {built} text --top-k -3", "top_k must be at least 0"),
        ("serve", "name an index: --index PATH or SEARCHQA_INDEX=PATH"),
        ("serve --index nowhere", "nowhere holds no index"),
        ("serve --index {built} --port 70000", "port=70000: Input should be less than or equal"),
        ("serve --index {built} --host no.such.host.invalid", "cannot listen on no.such.host"),
        ("serve --index {foreign}", "was built by another tokenizer"),
    ],
)
def test_mistakes_are_one_sentence(
    built, corpus, tmp_path, capsys, monkeypatch, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "1", "text": "fine"}\n{"id": "2", "text\n')
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    manifest = (built / "manifest.json").read_text()
    (foreign / "manifest.json").write_text(manifest.replace("unicode-words", "subwords"))
    before = sorted(tmp_path.rglob("*"))
    words = arguments.format(built=built, corpus=corpus, bad=bad, foreign=foreign).split()
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert sentence in err
    assert out == ""
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_port_in_use_is_a_sentence(built, live, capsys):
    port = str(live.base_url.port)
    assert main(["serve", "--index", str(built), "--port", port]) == 2
    assert f"cannot listen on 127.0.0.1:{port}: " in capsys.readouterr().err


def test_a_command_that_makes_no_sense_has_code_2(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["index", "destroy"])
    assert ended.value.code == 2


def test_a_missing_extra_is_one_line_and_building_needs_none(corpus, tmp_path):
    program = (
        "import sys\n"
        "for name in ('fastapi', 'uvicorn', 'pydantic', 'pydantic_settings'):\n"
        "    sys.modules[name] = None\n"
        "from searchqa_services.search.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )

    def run(*words):
        arguments = [sys.executable, "-c", program, *words]
        return subprocess.run(arguments, capture_output=True, text=True, timeout=60, cwd=tmp_path)

    assert run("index", "build", str(corpus), "index").returncode == 0
    refused = run("serve", "--index", "index")
    assert refused.returncode == 2
    assert refused.stderr == (
        "searchqa-search: serving needs an extra: pip install 'searchqa[services]'\n"
    )


def test_other_missing_modules_are_not_hidden(monkeypatch, built):
    monkeypatch.setitem(sys.modules, "searchqa_services.search.engine.verify", None)
    with pytest.raises(ModuleNotFoundError, match="verify"):
        main(["index", "verify", str(built)])
