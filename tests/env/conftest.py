"""A tiny corpus, a scripted search and environments over them: no network, no generated world."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import gymnasium
import pytest

import searchqa  # noqa: F401  (registers the environment)
from searchqa.search import EmbeddedSearch
from searchqa.types import Question, SearchHit
from searchqa_services.search.engine.bm25 import BM25Index, Document

PASSAGES = (
    ("p0", "France", "France is a country in Europe. Its capital is Paris."),
    ("p1", "Germany", "Germany is a country in Europe. Its capital is Berlin."),
    ("p2", "Dune (novel)", "Dune is a novel by Frank Herbert, who was born in Tacoma."),
    ("p3", "Tacoma", "Tacoma is a city in Washington, founded by Job Carr."),
    ("p4", "Zoë 日本", "Zoë Śmigły lives in 東京 with an emoji 😀."),
)
QUESTIONS = (
    Question(id="q0", text="What is the capital of France", golden_answers=("Paris",), hops=1),
    Question(
        id="q1",
        text="In which city was the author of Dune born?",
        golden_answers=("Tacoma", "Tacoma, Washington"),
        hops=2,
        type="bridge",
        source="tiny/test",
        supporting=("p2", "p3"),
        metadata={"chain": [["Dune", "author"]]},
    ),
    Question(id="q2", text="Where does Zoë live?", golden_answers=("東京", "Tokyo")),
)


class ScriptedSearch:
    """Answers from a list: hits, or an exception to raise; then always nothing."""

    fingerprint = "scripted"

    def __init__(self, *replies: Sequence[SearchHit] | BaseException) -> None:
        self.replies = list(replies)
        self.asked: list[str] = []
        self.probes = 0

    def search(self, queries: Sequence[str], top_k: int) -> list[list[SearchHit]]:
        self.asked += queries
        return [self._one(top_k) for _ in queries]

    def _one(self, top_k: int) -> list[SearchHit]:
        reply = self.replies.pop(0) if self.replies else []
        if isinstance(reply, BaseException):
            raise reply
        return list(reply)[:top_k]

    def check_ready(self) -> None:
        self.probes += 1


@pytest.fixture(scope="session")
def tiny_search() -> EmbeddedSearch:
    return EmbeddedSearch(BM25Index.from_documents(Document(*p) for p in PASSAGES))


@pytest.fixture(scope="session")
def tiny_questions() -> tuple[Question, ...]:
    return QUESTIONS


@pytest.fixture(scope="session")
def scripted() -> type[ScriptedSearch]:
    return ScriptedSearch


@pytest.fixture
def make_env(tiny_search: EmbeddedSearch) -> Iterator[Callable[..., gymnasium.Env[str, str]]]:
    made = []

    def make(**kwargs: object) -> gymnasium.Env[str, str]:
        given = {"questions": QUESTIONS, "search": tiny_search, **kwargs}
        made.append(gymnasium.make("SearchQA-v0", disable_env_checker=True, **given))
        return made[-1]

    yield make
    for env in made:
        env.close()


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data sets."""
    folder = os.environ.get("SEARCHQA_TEST_DATA", "")
    if not folder:
        if os.environ.get("CI") == "true":
            pytest.fail("SEARCHQA_TEST_DATA is unset, and under CI the real data must be there")
        pytest.skip("needs real data sets: set SEARCHQA_TEST_DATA to their folder")
    return Path(folder)
