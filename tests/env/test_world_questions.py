"""Questions of the generated world: answerable from the passages, split cleanly, in many words."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchqa.errors import ConfigError
from searchqa.questions import open_questions
from searchqa.search import open_search
from searchqa.types import Question
from searchqa.world import DEMO_RELATIONS, SPLITS, World, WorldConfig
from searchqa.world_facts import KINDS
from searchqa.world_passages import read_passage
from searchqa.world_paths import chains, menu
from searchqa.world_wordings import COMPARISONS, RELATIONS


@cache
def world() -> World:
    return World()


@cache
def questions(split: str) -> tuple[Question, ...]:
    return world().questions(split)


@cache
def everything() -> tuple[Question, ...]:
    return tuple(question for split in SPLITS for question in questions(split))


@cache
def facts_of(passage: int) -> dict[str, str]:
    return read_passage(world().passage(passage).text)[1]


def starts(question: Question) -> list[str]:
    """Titles that the question itself names."""
    chain = question.metadata["chain"]
    half = len(chain) // 2 if question.type == "comparison" else len(chain)
    return [hop["entity"] for hop in chain[::half]]


def test_the_demo_has_enough_questions():
    sizes = {
        split: len(world().questions(split, hops={2}, relations=DEMO_RELATIONS)) for split in SPLITS
    }
    assert sizes["train"] >= 4000
    assert min(sizes["validation"], sizes["test"]) >= 300


def test_the_demo_relations_are_four_chains_of_four_facts():
    pairs = Counter(
        tuple(question.metadata["relations"])
        for question in world().questions("train", hops={2}, relations=DEMO_RELATIONS)
    )
    people = {"director", "author", "singer", "founder"}
    facts = {"birth_country", "mother_tongue", "profession", "instrument"}
    assert people | facts == DEMO_RELATIONS
    assert pairs.keys() == {(person, fact) for person in people for fact in facts}
    assert max(pairs.values()) < 1.3 * min(pairs.values())


def test_there_are_questions_of_every_kind():
    kinds = Counter((question.hops, question.type) for question in questions("train"))
    assert kinds.keys() == {
        (1, "single"),
        (2, "bridge"),
        (3, "bridge"),
        (4, "bridge"),
        (2, "comparison"),
        (4, "comparison"),
    }
    assert min(kinds.values()) > 500
    asked = Counter(name for q in questions("train") for name in q.metadata["relations"])
    assert asked.keys() == RELATIONS.keys()


def test_a_chain_is_true_of_the_passages():
    for question in everything():
        chain = question.metadata["chain"]
        assert question.supporting == tuple(hop["passage_id"] for hop in chain)
        assert len(chain) == question.hops <= 4
        assert len(set(question.supporting)) == len(chain)
        for hop in chain:
            facts = facts_of(int(hop["passage_id"]))
            assert facts["title"] == hop["entity"]
            assert facts[hop["relation"]] == hop["answer"]


def test_a_bridge_leads_from_answer_to_entity_and_names_only_its_start():
    for question in everything():
        if question.type == "comparison":
            continue
        chain = question.metadata["chain"]
        assert question.golden_answers == (chain[-1]["answer"],)
        assert chain[0]["entity"] in question.text
        for this, after in pairwise(chain):
            assert this["answer"] == after["entity"]
        for hop in chain:
            assert f" {hop['answer']} " not in f" {question.text[:-1]} "


def test_a_comparison_is_right():
    answers: Counter[str] = Counter()
    for question in everything():
        if question.type != "comparison":
            continue
        chain = question.metadata["chain"]
        one, two = chain[: len(chain) // 2], chain[len(chain) // 2 :]
        assert [hop["relation"] for hop in one] == [hop["relation"] for hop in two]
        assert all(title in question.text for title in starts(question))
        values = one[-1]["answer"], two[-1]["answer"]
        if question.metadata["rule"] == "same":
            assert question.golden_answers == ("yes" if values[0] == values[1] else "no",)
            answers[question.golden_answers[0]] += 1
        else:
            first = one if int(values[0]) < int(values[1]) else two
            assert values[0] != values[1]
            assert question.golden_answers == (first[-1]["entity"],)
    assert 0.4 < answers["yes"] / answers.total() < 0.6


def test_splits_share_no_question_and_no_named_entity():
    texts = [question.text for question in everything()]
    assert len(set(texts)) == len(texts)
    keys = [
        (question.metadata.get("rule"), *(h["entity"] + h["relation"] for h in chain))
        for question in everything()
        for chain in [question.metadata["chain"]]
    ]
    assert len(set(keys)) == len(keys)
    named = {s: {title for q in questions(s) for title in starts(q)} for s in SPLITS}
    for one, other in [(0, 1), (0, 2), (1, 2)]:
        assert not named[SPLITS[one]] & named[SPLITS[other]]
    shares = [len(named[split]) for split in SPLITS]
    assert 0.76 < shares[0] / sum(shares) < 0.84


def test_ids_say_split_and_are_unique():
    for split in SPLITS:
        ids = [question.id for question in questions(split)]
        assert len(set(ids)) == len(ids)
        assert all(i.startswith(f"demo-{split}-") and i[len(split) + 6 :].isdecimal() for i in ids)
        assert {question.source for question in questions(split)} == {f"demo/{split}"}


def test_the_order_mixes_kinds():
    for start in range(0, 2000, 200):
        part = questions("train")[start : start + 200]
        kinds = Counter((question.hops, question.type) for question in part)
        assert len(kinds) == 6
        assert max(kinds.values()) < 140


@given(
    split=st.sampled_from(SPLITS),
    hops=st.none() | st.sets(st.integers(1, 4)),
    types=st.none() | st.sets(st.sampled_from(["single", "bridge", "comparison"])),
    relations=st.none() | st.sets(st.sampled_from([*RELATIONS, "same", "earlier"]), min_size=8),
    limit=st.none() | st.integers(0, 50),
)
@settings(max_examples=25, deadline=None)
def test_filters_only_take_away(
    split: str,
    hops: set[int] | None,
    types: set[str] | None,
    relations: set[str] | None,
    limit: int | None,
):
    small = WorldConfig(passages=600, seed=2)
    expected = [
        question
        for question in World(small).questions(split)
        if (hops is None or question.hops in hops)
        and (types is None or question.type in types)
        and (
            relations is None
            or {*question.metadata["relations"], question.metadata.get("rule", "same")}
            <= relations | ({"same"} if "rule" not in question.metadata else set())
        )
    ]
    found = World(small).questions(split, hops=hops, types=types, relations=relations, limit=limit)
    assert list(found) == expected[:limit]


@pytest.mark.parametrize(
    ("given_", "sentence"),
    [
        ({"split": "dev"}, "split: 'dev' is unknown, but it must be among train, validation, test"),
        ({"hops": [5]}, "hops: 5 is unknown, but it must be among 1, 2, 3, 4"),
        ({"types": ["compare"]}, "types: 'compare' is unknown, .* single, bridge, comparison"),
        ({"relations": ["boss"]}, "relations: 'boss' is unknown"),
        ({"limit": -1}, "limit is -1, but it must be at least 0"),
    ],
)
def test_a_filter_that_means_nothing_is_refused(given_: dict[str, object], sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        world().questions(**{"split": "train", **given_})  # type: ignore[arg-type]


def test_a_huge_world_answers_at_once():
    huge = World(WorldConfig(passages=2_000_000, seed=9))
    found = huge.questions("validation", hops={4}, types={"bridge"}, limit=50)
    assert len(found) == 50
    for question in found:
        for hop in question.metadata["chain"]:
            passage = huge.passage(int(hop["passage_id"]))
            assert read_passage(passage.text)[1][hop["relation"]] == hop["answer"]


def test_every_relation_has_three_wordings_that_name_their_thing_once():
    assert len(RELATIONS) >= 8
    for name, relation in RELATIONS.items():
        assert len(set(relation.ask)) >= 3, name
        for text in (*relation.ask, *relation.phrase):
            assert text.count("{x}") == 1
        assert bool(relation.phrase) or relation.value not in KINDS
        assert bool(relation.clause) == (relation.value == "person")
    for comparison in COMPARISONS:
        assert len(set(comparison.ask)) >= 3
        assert all(text.count("{a}") == text.count("{b}") == 1 for text in comparison.ask)


def test_all_wordings_of_the_demo_are_met():
    skeletons = Counter(
        question.text.replace(question.metadata["chain"][0]["entity"], "X")
        for question in world().questions("train", hops={2}, relations=DEMO_RELATIONS)
        if question.metadata["relations"] == ["director", "birth_country"]
    )
    assert len(skeletons) == 3 * 3 + 1
    assert skeletons["X was directed by someone who was born in which country?"] > 0
    assert skeletons["In which country was the director of X born?"] > 0


def test_no_chain_takes_a_shortcut_and_menus_are_full():
    for kind in KINDS:
        for hops in (1, 2, 3, 4):
            for path in chains(kind, hops):
                assert ("birth_city", "city_country") not in pairwise(path.relations)
        assert all(0 < group.quota <= len(group.paths) for group in menu(kind))


@pytest.mark.parametrize("seed", [0, 1])
def test_a_title_finds_its_passage_first(seed: int):
    spec = f"demo:test?passages=5000&seed={seed}"
    search = open_search("embedded", spec, 1.0)
    passages = World(WorldConfig(passages=5000, seed=seed)).passages
    hits = search.search([passage.title for passage in passages], 1)
    found = sum(hit[0].id == passage.id for hit, passage in zip(hits, passages, strict=True))
    assert found / len(passages) >= 0.99


def test_the_environment_can_ask_them():
    spec = "demo:validation?hops=2&relations=demo&passages=1000&seed=4&limit=10"
    small = World(WorldConfig(passages=1000, seed=4))
    expected = small.questions("validation", hops={2}, relations=DEMO_RELATIONS, limit=10)
    assert open_questions(spec).questions == expected
