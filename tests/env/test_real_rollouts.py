"""5,500 real Search-R1 rollouts: prompt, observation, parsing and score as they were produced."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from searchqa.protocols.base import Answer, Invalid, Search
from searchqa.protocols.search_r1 import INVALID, SearchR1
from searchqa.scoring import em
from searchqa.types import SearchHit

protocol = SearchR1()
_OBSERVATION = re.compile(r"\n\n<information>(.*?)</information>\n\n", re.DOTALL)
_DOC = re.compile(r"Doc (\d+)\(Title: (.*?)\) (.*?)(?:\n(?=Doc \d+\(Title)|\Z)", re.DOTALL)

_CUT_HEADING = re.compile(r"\nDoc(?: \d*(?:\(T?i?t?l?e?:?(?: [^)\n]*)?)?)?\Z")
_REACTION = re.compile(f"(\n\n<information>.*?</information>\n\n|{re.escape(INVALID)})", re.DOTALL)


@cache
def load(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture
def rollouts(data: Path) -> list[dict[str, Any]]:
    return load(data / "searchr1_rollouts" / "rollouts.jsonl.gz")


def test_every_score_is_the_published_one(rollouts: list[dict[str, Any]]) -> None:
    scores = [(em(r["pred"], r["golden_answers"]), r["metric_score"]["em"]) for r in rollouts]
    assert len(scores) == 5500
    assert [ours for ours, _ in scores] == [theirs for _, theirs in scores]
    assert 0.2 < sum(ours for ours, _ in scores) / 5500 < 0.6


def test_the_prompt_is_the_published_one(rollouts: list[dict[str, Any]]) -> None:
    assert all(protocol.prompt(r["question"]) in r["query"] for r in rollouts)


def test_observations_rebuilt_from_their_passages_are_equal(rollouts: list[dict[str, Any]]) -> None:
    equal = 0
    for r in rollouts:
        for found in _OBSERVATION.finditer(r["final_response"]):
            # They were cut by tokens: a last blank or a last heading may be half there.
            body = _CUT_HEADING.sub("", found[1].strip())
            docs = _DOC.findall(body)
            hits = [SearchHit(id=n, contents=f"{top}\n{text}", score=1.0) for n, top, text in docs]
            if docs and [n for n, _, _ in docs] == [str(i + 1) for i in range(len(docs))]:
                wanted = f"\n\n<information>{body}</information>\n\n"
                assert protocol.render([hits], None).text == wanted
                equal += wanted == found[0]
    assert equal > 4000


def test_every_model_turn_is_read_as_it_was(rollouts: list[dict[str, Any]]) -> None:
    """What the real environment did next, search or complain, tells how it read a turn."""
    read = {"search": 0, "invalid": 0, "answer": 0, "unfinished": 0}
    for r in rollouts:
        pieces = re.split(_REACTION, r["final_response"])
        for turn, reaction in zip(pieces[0::2], [*pieces[1::2], ""], strict=True):
            action = protocol.parse(turn)
            assert action.consumed == len(turn)
            if reaction == INVALID:
                assert isinstance(action, Invalid)
                read["invalid"] += 1
            elif reaction:
                assert isinstance(action, Search)
                read["search"] += 1
            elif isinstance(action, Answer):
                assert action.text == r["pred"]
                read["answer"] += 1
            else:
                assert isinstance(action, Invalid)
                read["unfinished"] += 1
    assert read == {"search": 5237, "invalid": 79, "answer": 4877, "unfinished": 623}
