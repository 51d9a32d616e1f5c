"""The scripted player: right when faultless, wrong as told, no better informed than shown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache, partial

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchqa.demonstrator import (
    FAULTLESS,
    UNKNOWN,
    Clumsiness,
    Demonstrator,
    answer_action,
    oracle_action,
    search_action,
)
from searchqa.errors import ConfigError
from searchqa.types import Question
from searchqa.world import DEMO_RELATIONS, World, WorldConfig

CONFIG = WorldConfig(passages=1500, seed=1)
NOTHING = "\n\n<information>No results found.</information>\n\n"


@cache
def world() -> World:
    return World(CONFIG)


@cache
def by_title() -> dict[str, str]:
    return {passage.title: passage.text for passage in world().passages}


@cache
def demo(split: str = "train") -> tuple[Question, ...]:
    return world().questions(split, hops={2}, relations=DEMO_RELATIONS)


def look_up(query: str, edit: Callable[[str], str] = str) -> str:
    """One hit by title, as an observation, between two that only stand in the way."""
    other = world().passage(0)
    hits = [(query, edit(by_title()[query])), (other.title, other.text)]
    docs = [f'Doc {i}(Title: "{t}") {text}\n' for i, (t, text) in enumerate(hits, 1)]
    return f"\n\n<information>{''.join(docs).strip()}</information>\n\n"


def play(
    question: Question,
    seed: int,
    clumsiness: Clumsiness,
    search: Callable[[str], str] = look_up,
) -> tuple[list[str], str]:
    """Queries and answer of one demonstration."""
    player = Demonstrator(question, np.random.default_rng(seed), clumsiness, CONFIG)
    queries: list[str] = []
    observation = question.text
    while True:
        action = player.act(observation)
        tag, content = action[1:].split("> ", 1)
        content = content.removesuffix(f" </{tag}>")
        if tag == "answer":
            return queries, content
        queries.append(content)
        observation = search(content)


@pytest.mark.parametrize("top_k", [1, 3])
def test_the_faultless_player_is_right_in_the_environment(top_k: int):
    env = gymnasium.make(
        "SearchQA-v0", questions="demo:test?passages=1500&seed=1&limit=250", top_k=top_k
    )
    scores: dict[tuple[int, str], list[float]] = defaultdict(list)
    for seed in range(250):
        text, info = env.reset(seed=seed)
        question = questions_by_id()[info["question_id"]]
        player = Demonstrator(question, np.random.default_rng(seed), FAULTLESS, CONFIG)
        done = False
        while not done:
            text, _, terminated, truncated, info = env.step(player.act(text))
            done = terminated or truncated
        assert info["num_searches"] == question.hops
        scores[question.hops, question.type].append(info["em"])
    assert len(scores) == 6
    assert all(np.mean(ems) >= 0.95 for ems in scores.values())


@cache
def sample() -> tuple[Question, ...]:
    """Of every type and number of hops."""
    return world().questions("validation")


@cache
def questions_by_id() -> dict[str, Question]:
    return {question.id: question for question in world().questions("test", limit=250)}


def test_the_oracle_searches_the_chain_and_gives_the_gold_answer():
    for question in world().questions("train", limit=200):
        chain = question.metadata["chain"]
        for turn, hop in enumerate(chain):
            assert oracle_action(question, turn) == f"<search> {hop['entity']} </search>"
        gold = f"<answer> {question.golden_answers[0]} </answer>"
        assert oracle_action(question, len(chain)) == gold


def test_the_faultless_player_does_what_the_oracle_does():
    for question in world().questions("train", limit=300):
        queries, answer = play(question, 0, FAULTLESS)
        actions = [*map(search_action, queries), answer_action(answer)]
        assert actions == [oracle_action(question, turn) for turn in range(len(actions))]


def test_facts_come_from_what_it_is_shown():
    """Where the passages lie, the answer is the lie."""
    swap = {"Velmark": "Atlantis", "miner": "poet", "banjo": "theremin", "Arlish": "Latin"}

    def lie(text: str) -> str:
        for true, false in swap.items():
            text = text.replace(true, false)
        return text

    seen: Counter[str] = Counter()
    for question in demo():
        _, answer = play(question, 0, FAULTLESS, partial(look_up, edit=lie))
        gold = question.golden_answers[0]
        assert answer == swap.get(gold, gold)
        seen[answer] += answer != gold
    assert min(seen[false] for false in swap.values()) > 0


def test_without_observations_it_can_only_guess():
    guesses = Counter(
        play(question, seed, FAULTLESS, lambda _: NOTHING)[1]
        for seed, question in enumerate(demo()[:200])
    )
    priors = [world().prior(q.metadata["relations"][1]) for q in demo()[:200]]
    assert guesses.keys() <= {value for prior in priors for value in prior}
    modes = {next(iter(prior)) for prior in priors}
    assert sum(guesses[mode] for mode in modes) > 150


def test_zero_searches_guess_the_mode_as_often_as_told():
    clumsy = Clumsiness(depth_weights=(1.0,), mode=0.7)
    hits = []
    for seed, question in enumerate(demo() * 2):
        queries, answer = play(question, seed, clumsy)
        prior = world().prior(question.metadata["relations"][1])
        assert queries == []
        assert answer in prior
        hits.append(answer == next(iter(prior)))
    # Drawing from the prior gives the mode, too, with probability 0.36.
    expected = 0.7 + 0.3 * 0.36
    assert abs(np.mean(hits) - expected) < 4 * np.sqrt(0.2 / len(hits))


def test_one_search_copies_a_value_of_the_right_kind():
    clumsy = Clumsiness(depth_weights=(0.0, 1.0))
    for seed, question in enumerate(demo()):
        queries, answer = play(question, seed, clumsy)
        assert queries == [question.metadata["chain"][0]["entity"]]
        fact = question.metadata["relations"][1]
        assert answer in world().prior(fact)
        if fact == "birth_country":
            assert answer in by_title()[queries[0]]


def test_one_search_with_no_copying_guesses():
    clumsy = Clumsiness(depth_weights=(0.0, 1.0), copy=0.0, mode=1.0)
    for seed, question in enumerate(demo()[:100]):
        _, answer = play(question, seed, clumsy)
        assert answer == next(iter(world().prior(question.metadata["relations"][1])))


def test_one_search_is_enough_for_one_hop():
    for seed, question in enumerate(world().questions("train", hops={1}, limit=100)):
        _, answer = play(question, seed, Clumsiness(depth_weights=(0.0, 1.0), follow=0.0))
        assert (answer,) == question.golden_answers


def test_a_wrong_turn_goes_to_another_person_of_the_passage_and_answers_from_there():
    clumsy = Clumsiness(depth_weights=(0.0, 0.0, 1.0), follow=0.0)
    for seed, question in enumerate(demo()[:300]):
        first, second = play(question, seed, clumsy)[0]
        right = question.metadata["chain"][1]["entity"]
        assert second != right
        assert second in by_title()[first]
        assert len(second.split()) == 2
        _, answer = play(question, seed, clumsy)
        assert answer in by_title()[second]


@pytest.mark.parametrize("follow", [0.1, 0.6])
def test_the_right_entity_is_followed_as_often_as_told_and_then_the_answer_is_right(follow: float):
    clumsy = Clumsiness(depth_weights=(0.0, 0.0, 1.0), follow=follow)
    followed = []
    for seed, question in enumerate(demo()):
        queries, answer = play(question, seed, clumsy)
        followed.append(queries[1] == question.metadata["chain"][1]["entity"])
        if followed[-1]:
            assert (answer,) == question.golden_answers
    assert abs(np.mean(followed) - follow) < 4 * np.sqrt(0.25 / len(followed))


def test_searches_past_the_chain_look_again_or_wander():
    again = Clumsiness(depth_weights=(0.0, 0.0, 0.0, 0.0, 1.0), follow=1.0)
    wander = Clumsiness(depth_weights=(0.0, 0.0, 0.0, 0.0, 1.0), follow=0.3)
    for seed, question in enumerate(demo()[:60]):
        queries, answer = play(question, seed, again)
        assert queries[1] == queries[2] == queries[3]
        assert (answer,) == question.golden_answers
        queries, _ = play(question, seed, wander)
        assert len(queries) == 4
        assert set(queries) <= by_title().keys()


def test_misreading_takes_another_value_of_the_passage():
    clumsy = Clumsiness(depth_weights=(), follow=1.0, misread=1.0)
    for seed, question in enumerate(demo()[:100]):
        queries, answer = play(question, seed, clumsy)
        assert answer in by_title()[queries[-1]]
        assert answer != queries[-1]
    wrong = [(play(q, 1, clumsy)[1],) != q.golden_answers for q in demo()[:100]]
    assert np.mean(wrong) == 1.0


def test_depths_are_drawn_by_their_weights():
    clumsy = Clumsiness(depth_weights=(2.0, 1.0, 0.0, 1.0))
    depths = Counter(
        Demonstrator(demo()[0], np.random.default_rng(seed), clumsy).depth for seed in range(2000)
    )
    assert depths.keys() == {0, 1, 3}
    assert abs(depths[0] / 2000 - 0.5) < 0.05
    assert abs(depths[1] / 2000 - 0.25) < 0.05


@given(
    seed=st.integers(0, 2**32),
    place=st.integers(0, 500),
    weights=st.lists(st.floats(0.01, 1.0), max_size=6),
    follow=st.floats(0, 1),
    misread=st.floats(0, 1),
    shown=st.lists(st.text(max_size=80), min_size=6, max_size=6),
)
@settings(max_examples=60, deadline=None)
def test_every_play_ends_and_depends_on_its_seed_alone(
    seed: int,
    place: int,
    weights: list[float],
    follow: float,
    misread: float,
    shown: list[str],
):
    """Also on observations that say nothing it can read."""
    clumsy = Clumsiness(depth_weights=tuple(weights), follow=follow, misread=misread)
    everything = sample()
    question = everything[place % len(everything)]
    one = play(question, seed, clumsy)
    assert one == play(question, seed, clumsy)
    assert len(one[0]) <= max(len(weights) - 1, 4)
    replies = iter(shown)
    queries, answer = play(question, seed, clumsy, lambda _: next(replies))
    assert all(queries)
    assert answer


def test_a_comparison_without_both_values_is_a_guess():
    for seed, question in enumerate(world().questions("train", types={"comparison"}, limit=200)):
        _, answer = play(question, seed, Clumsiness(depth_weights=(0.5, 0.5), follow=1.0))
        starts = [hop["entity"] for hop in question.metadata["chain"]]
        assert answer in {"yes", "no", UNKNOWN, *starts}


def test_what_cannot_be_guessed_is_unknown():
    questions = world().questions("train", relations={"director"}, limit=5)
    assert questions
    for question in questions:
        assert play(question, 0, Clumsiness(depth_weights=(1.0,)))[1] == UNKNOWN


@pytest.mark.parametrize(
    ("given_", "sentence"),
    [
        ({"follow": 1.5}, "follow is 1.5, but it must be 0 to 1"),
        ({"mode": -0.1}, "mode is -0.1, but it must be 0 to 1"),
        ({"copy": float("nan")}, "copy is nan, but it must be 0 to 1"),
        ({"misread": 2.0}, "misread is 2.0"),
        ({"depth_weights": (0.5, -0.1)}, "depth_weights are .*, but they must be at least 0"),
        ({"depth_weights": (0.0, 0.0)}, "and not all 0"),
        ({"depth_weights": (float("nan"), 1.0)}, "depth_weights are"),
        ({"depth_weights": (float("inf"), 1.0)}, "depth_weights are"),
    ],
)
def test_impossible_clumsiness_is_refused(given_: dict[str, object], sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        Clumsiness(**given_)  # type: ignore[arg-type]


@pytest.mark.parametrize("metadata", [{}, {"chain": []}, {"chain": [["Dune", "author"]]}])
def test_a_question_from_elsewhere_is_refused(metadata: dict[str, object]):
    foreign = Question(id="q7", text="Who?", golden_answers=("me",), metadata=metadata)
    for call in (
        lambda: oracle_action(foreign, 0),
        lambda: Demonstrator(foreign, np.random.default_rng(0)),
    ):
        with pytest.raises(ConfigError, match="Question q7 has no chain of hops with answer, ent"):
            call()
