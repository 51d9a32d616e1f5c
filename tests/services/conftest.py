"""A real server on loopback, and corpora to serve."""

import json
import os
import random
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn

from searchqa_services.search.app import create_app
from searchqa_services.search.engine.bm25 import BM25Index
from searchqa_services.search.engine.documents import Document
from searchqa_services.search.settings import Settings


@contextmanager
def _running(app):
    config = uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server died while starting"
        time.sleep(0.005)
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    try:
        with httpx.Client(base_url=f"http://{host}:{port}", timeout=30, trust_env=False) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        assert not thread.is_alive(), "the server did not stop"


@pytest.fixture
def serving():
    """Return a context manager: an index or its folder in, a client of the live server out."""

    def start(index=None, folder=None, **settings):
        return _running(create_app(Settings(index=folder, **settings), index))

    return start


@pytest.fixture(scope="session")
def documents_of():
    """Return documents for texts, with the places as ids and no titles."""
    return lambda *texts: [Document(str(i), "", text) for i, text in enumerate(texts)]


@pytest.fixture(scope="session")
def small_corpus():
    """300 documents of skewed random words, with repeats, so that there are many ties."""
    rng = random.Random(7)
    words = [f"w{i}" for i in range(60)] + ["é", "7", "日本"]
    weights = [1 / (i + 1) for i in range(len(words))]
    texts = [" ".join(rng.choices(words, weights, k=rng.randint(1, 20))) for _ in range(250)]
    texts += texts[:50]
    return [Document(f"d{i}", f"title{i % 90}", text) for i, text in enumerate(texts)]


@pytest.fixture(scope="session")
def small_index(small_corpus):
    """The small corpus, indexed in memory."""
    return BM25Index.from_documents(small_corpus)


@pytest.fixture(scope="session")
def live(small_index):
    """A client of a live server over the small index, with default settings."""
    with _running(create_app(Settings(), small_index)) as client:
        yield client


@pytest.fixture(scope="session")
def data():
    """The folder of real test data."""
    folder = os.environ.get("SEARCHQA_TEST_DATA")
    if not folder:
        pytest.skip("SEARCHQA_TEST_DATA is not set, so there is no real data")
    return Path(folder)


@pytest.fixture
def write_jsonl(tmp_path):
    """Write rows as JSONL and return the path."""

    def write(rows, name="corpus.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write
