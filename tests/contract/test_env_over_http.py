"""The environment against the real service over a real socket: the same episodes, to the letter."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import uvicorn
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from searchqa.demonstrator import Clumsiness, Demonstrator
from searchqa.errors import SearchProtocolError, SearchUnavailable
from searchqa.http_search import HttpSearch
from searchqa.questions import demo_world
from searchqa.search import open_search
from searchqa_services.search.app import create_app
from searchqa_services.search.engine.bm25 import BM25Index, Document
from searchqa_services.search.engine.build import build_index
from searchqa_services.search.settings import Settings

QUESTIONS = "demo:test?passages=1000"


@contextmanager
def serving(index: BM25Index | None, port: int = 0) -> Iterator[str]:
    """The service on loopback; yields its base URL."""
    config = uvicorn.Config(
        create_app(Settings(), index), port=port, log_level="warning", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server died while starting"
        time.sleep(0.005)
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def index() -> BM25Index:
    passages = demo_world(passages=1000).passages
    return BM25Index.from_documents(Document(p.id, p.title, p.text) for p in passages)


@pytest.fixture(scope="module")
def url(index: BM25Index) -> Iterator[str]:
    with serving(index) as base:
        yield base


def play(search: str, seed: int) -> list[Any]:
    env = gymnasium.make("SearchQA-v0", questions=QUESTIONS, search=search)
    text, info = env.reset(seed=seed)
    question = env.unwrapped.machine.question
    player = Demonstrator(question, np.random.default_rng(seed), Clumsiness(follow=0.5))
    seen, done = [(text, info)], False
    while not done:
        text, reward, terminated, truncated, info = env.step(player.act(text))
        seen.append((text, reward, terminated, truncated, info))
        done = terminated or truncated
    return seen


@pytest.mark.parametrize("path", ["", "/retrieve"])
def test_served_and_embedded_search_give_equal_episodes(url: str, path: str) -> None:
    for seed in range(20):
        assert play(url + path, seed) == play("embedded", seed)


def test_the_record_names_the_index_that_answered(url: str, index: BM25Index) -> None:
    record = json.loads(play(url, 0)[-1][-1]["record"])
    assert record["index_fingerprint"] == index.fingerprint


def test_hits_agree_to_the_bit_for_any_text(url: str) -> None:
    served, embedded = HttpSearch(url), open_search("embedded", QUESTIONS, 30.0)
    queries = ["", "zzz 日本 😀", "film", "the of", "who directed The Golden Mirror?", "a " * 500]
    for top_k in (1, 3, 50):
        assert served.search(queries, top_k) == embedded.search(queries, top_k)


def test_contents_reach_the_agent_as_the_corpus_spells_them(tmp_path: Path) -> None:
    spellings = ['"Quoted"\nword', "Bare\nword", "one line word", '"R"\r\nword', '""\nword']
    corpus = tmp_path / "corpus.jsonl"
    rows = [{"id": str(i), "contents": contents} for i, contents in enumerate(spellings)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    embedded = open_search(f"embedded:{corpus}", "", 30.0)
    build_index(corpus, tmp_path / "index")
    with serving(BM25Index.load(tmp_path / "index")) as base:
        served = HttpSearch(base).search(["word"], 9)
    assert served == embedded.search(["word"], 9)
    assert sorted(hit.contents for hit in served[0]) == sorted(spellings)


def test_a_loading_service_is_waited_for_and_a_missing_one_is_not(index: BM25Index) -> None:
    with serving(None) as base:
        env = gymnasium.make("SearchQA-v0", questions=QUESTIONS, search=base, search_timeout_s=0.5)
        with pytest.raises(SearchUnavailable, match=f"{base}/ready did not answer"):
            env.reset(seed=0)


def test_an_episode_survives_a_restart_of_the_service(index: BM25Index) -> None:
    with serving(index) as base:
        env = gymnasium.make("SearchQA-v0", questions=QUESTIONS, search=base, search_timeout_s=1.5)
        env.reset(seed=0)
        env.step("<search>film</search>")
    with pytest.raises(SearchUnavailable):
        env.step("<search>film director</search>")
    with serving(index, port=int(base.rsplit(":", 1)[1])):
        info = env.step("<search>film director</search>")[-1]
    assert (info["num_searches"], info["num_failed"], info["num_turns"]) == (2, 0, 2)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_child_processes_search_the_service_too(url: str, context: str) -> None:
    play(url, 0)  # opens this process's connections, which a fork inherits
    make = partial(gymnasium.make, "searchqa:SearchQA-v0", questions=QUESTIONS, search=url)
    actions = ("<search>film</search>", "<search>director</search>")
    seen = []
    for vector in (
        SyncVectorEnv([make] * 2),
        AsyncVectorEnv([make] * 2, shared_memory=False, context=context),
    ):
        vector.reset(seed=1)
        seen.append([vector.step(actions)[0] for _ in range(3)])
        vector.close()
    assert seen[0] == seen[1]


def test_a_request_the_service_refuses_is_no_empty_result(url: str) -> None:
    with pytest.raises(SearchProtocolError, match="answered 422"):
        HttpSearch(url).search(["q"] * 100_000, 3)
