"""Real processes: the serve command, its workers, and what compose runs."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from searchqa_services.search.app import create_app
from searchqa_services.search.engine.bm25 import BM25Index
from searchqa_services.search.serve import listen, server_config
from searchqa_services.search.settings import Settings

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SEARCH = str(BIN / "searchqa-search")


@contextmanager
def process(arguments, **environment):
    """Run a server; yield the address it announces, and interrupt it at the end."""
    variables = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **environment}
    server = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=variables)
    lines = []
    address = None
    for line in server.stderr:
        lines.append(line)
        if found := re.search(r"at (http://[\d.]+:\d+)$", line.strip()):
            address = found[1]
            break
    drain = threading.Thread(target=lambda: lines.extend(server.stderr))
    drain.start()
    try:
        assert address, "".join(lines)
        yield address
    finally:
        server.send_signal(signal.SIGINT)
        code = server.wait(timeout=20)
        drain.join()
        server.stderr.close()
    assert code == 0, "".join(lines)


def wait_ready(address):
    """Return the answer of /ready once it is 200."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        answer = httpx.get(f"{address}/ready", trust_env=False, timeout=20)
        if answer.status_code == 200:
            return answer.json()
        time.sleep(0.05)
    raise AssertionError("never ready")


@pytest.fixture
def folder(small_index, tmp_path):
    """The small index, saved."""
    small_index.save(tmp_path / "index")
    return tmp_path / "index"


def test_serve_answers_without_waiting_for_delayed_acknowledgements(folder, small_index):
    with process([SEARCH, "serve", "--index", str(folder), "--port", "0"]) as address:
        assert address.startswith("http://127.0.0.1:")
        assert wait_ready(address)["fingerprint"] == small_index.fingerprint
        with httpx.Client(base_url=address, trust_env=False) as http:
            http.post("/retrieve", json={"queries": ["w0"]})
            times = []
            for _ in range(30):
                start = time.perf_counter()
                assert http.post("/retrieve", json={"queries": ["w0"]}).status_code == 200
                times.append(time.perf_counter() - start)
    assert sorted(times)[10] < 0.035  # without TCP_NODELAY each takes 40 ms


@pytest.mark.slow
def test_two_workers_share_one_port(folder, small_index):
    arguments = [SEARCH, "serve", "--index", str(folder), "--port", "0", "--workers", "2"]
    with process(arguments, SEARCHQA_DEFAULT_TOP_K="5") as address:
        wait_ready(address)
        body = {"queries": ["w0 w1"]}
        expected = [h.document.id for h in small_index.search(["w0 w1"], 5)[0]]
        answered, deadline = 0, time.monotonic() + 60
        while answered < 20:  # on as many connections, so that both workers answer some
            assert time.monotonic() < deadline
            answer = httpx.post(f"{address}/retrieve", json=body, trust_env=False, timeout=30)
            if answer.status_code == 503:  # this worker is still loading
                time.sleep(0.2)
                continue
            assert [d["id"] for d in answer.json()["result"][0]] == expected
            answered += 1


@pytest.fixture(scope="module")
def compose():
    """The search service of the compose file."""
    return yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["search"]


def test_compose_publishes_on_loopback_and_watches_readiness(compose):
    assert compose["ports"] == ["127.0.0.1:8000:8000"]
    assert compose["environment"]["SEARCHQA_HOST"] == "0.0.0.0"
    assert "/ready" in compose["healthcheck"]["test"][-1]
    assert (ROOT / compose["build"]["context"] / compose["build"]["dockerfile"]).is_file()


def test_the_image_is_pinned_and_not_root():
    text = (ROOT / "services" / "Dockerfile").read_text()
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert all(re.fullmatch(r"[a-z]+:\d+\.\d+\.\d+-[\w-]+", base) for base in bases)
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE) == ["searchqa"]
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for name in source.split():
            assert (ROOT / name).exists(), name
            top = name.split("/")[0]
            assert f"!{top}\n" in (ROOT / ".dockerignore").read_text(), name


def test_what_compose_runs_builds_the_demo_world_and_serves_it(compose, tmp_path):
    assert compose["command"] == ["searchqa-start"]
    assert (
        "services/start.sh /usr/local/bin/searchqa-start"
        in (ROOT / "services" / "Dockerfile").read_text()
    )
    variables = compose["environment"] | {
        "SEARCHQA_DATA": str(tmp_path),
        "SEARCHQA_HOST": "127.0.0.1",
        "SEARCHQA_PORT": "0",
        "SEARCHQA_PASSAGES": "1000",
    }
    start = ["sh", str(ROOT / "services" / "start.sh")]
    with process(start, **variables) as address:
        size = wait_ready(address)["size"]
        index = BM25Index.load(tmp_path / "index-demo-1000")
        assert size == index.size >= 900
        title = index.documents[0].title
        body = {"queries": [title], "topk": 3, "return_scores": True}
        (hits,) = httpx.post(f"{address}/retrieve", json=body, trust_env=False).json()["result"]
        assert title in [hit["document"]["title"] for hit in hits]
        host, port = address.removeprefix("http://").split(":")
        check = compose["healthcheck"]["test"][-1].replace("127.0.0.1:8000", f"{host}:{port}")
        assert subprocess.run([sys.executable, "-c", check], timeout=20).returncode == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["index-demo-1000", "world-1000"]

    with process(start, **variables) as address:  # a restart neither generates nor builds
        assert wait_ready(address)["size"] == size


START = ["sh", str(ROOT / "services" / "start.sh")]


@pytest.fixture
def start_with(compose, tmp_path):
    """Variables of start.sh over a folder of its own."""
    (tmp_path / "data").mkdir()
    base = {"SEARCHQA_DATA": str(tmp_path / "data"), "SEARCHQA_HOST": "127.0.0.1"}
    return lambda **changes: compose["environment"] | base | {"SEARCHQA_PORT": "0"} | changes


def titles(variables):
    """What start.sh serves: the titles of all documents that hold 'words'."""
    with process(START, **variables) as address:
        wait_ready(address)
        body = {"queries": ["words"], "topk": 9}
        (hits,) = httpx.post(f"{address}/retrieve", json=body, trust_env=False).json()["result"]
        return [hit["title"] for hit in hits]


def test_start_serves_the_corpus_it_is_given_and_never_another(start_with, write_jsonl, tmp_path):
    one = write_jsonl([{"id": "1", "contents": '"One"\nwords'}], "one.jsonl")
    two = write_jsonl([{"id": "1", "contents": '"Two"\nwords'}], "two.jsonl")
    assert titles(start_with(SEARCHQA_CORPUS=str(one))) == ["One"]
    built = {p: p.stat().st_mtime_ns for p in (tmp_path / "data").rglob("manifest.json")}
    assert titles(start_with(SEARCHQA_CORPUS=str(two))) == ["Two"]
    assert titles(start_with(SEARCHQA_CORPUS=str(one))) == ["One"]
    assert [path.stat().st_mtime_ns for path in built] == list(built.values())  # not built again
    write_jsonl([{"id": "1", "contents": '"Three"\nwords'}], "one.jsonl")
    os.utime(one, (time.time() + 5, time.time() + 5))
    assert titles(start_with(SEARCHQA_CORPUS=str(one))) == ["Three"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"SEARCHQA_CORPUS": "/nowhere/c.jsonl"}, "'/nowhere/c.jsonl', but there is no such file"),
        ({"SEARCHQA_PASSAGES": "1e3"}, "'1e3', but it must be a whole number"),
        ({"SEARCHQA_CORPUS": "x", "SEARCHQA_PASSAGES": "9"}, "not both"),
    ],
)
def test_start_refuses_what_it_cannot_serve(start_with, tmp_path, changes, sentence):
    variables = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        START, env=variables | start_with(**changes), capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert list((tmp_path / "data").iterdir()) == []


def test_pooled_connections_outlive_the_clients_patience():
    config = server_config(Settings(), create_app(Settings()))
    assert config.timeout_keep_alive >= 75
    assert config.backlog >= 2048
    assert config.access_log is False
    assert Settings().threads + Settings().queue_size >= 512


def test_the_listener_speaks_tcp_by_name():
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
