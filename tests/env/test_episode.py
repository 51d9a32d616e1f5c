from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchqa.episode import EpisodeMachine, Rules
from searchqa.errors import EpisodeError, SearchProtocolError
from searchqa.protocols import get_protocol
from searchqa.protocols.base import Action, Search
from searchqa.protocols.search_r1 import INVALID, OVER_BUDGET, SearchR1
from searchqa.record import from_json, to_json
from searchqa.structure import COUNTERS
from searchqa.types import Question, SearchHit, Status

QUESTION = Question(id="q", text="Who?", golden_answers=("Ann", "Bob"), supporting=("s1", "s2"))
HIT = SearchHit(id="s1", contents='"T"\nIt was Ann.', score=2.0)
MISS = SearchHit(id="x", contents='"T"\nNobody.', score=1.0)


def rules(**changes: object) -> Rules:
    return Rules(protocol=get_protocol("search_r1"), **changes)  # type: ignore[arg-type]


def play(machine: EpisodeMachine, *turns: tuple[str, Sequence[SearchHit]] | str) -> list[str]:
    """Replies, or (reply, what its search finds); returns the observations."""
    texts = []
    for turn in turns:
        reply, found = (turn, ()) if isinstance(turn, str) else turn
        queries = machine.act(reply)
        texts.append(machine.observe([found] * len(queries)))
    return texts


def search(query: str) -> str:
    return f"<search>{query}</search>"


def test_the_way_through() -> None:
    machine = EpisodeMachine(QUESTION, rules(), seed=7, index_fingerprint="f")
    assert machine.act("<think>t</think>" + search("a  b") + " rest") == ("a b",)
    text = machine.observe([[HIT, MISS]])
    assert text.startswith('\n\n<information>Doc 1(Title: "T") It was Ann.')
    assert play(
        machine, "hm", (search("A b"), [MISS]), (search("c"), []), "<answer>bob</answer>"
    ) == [
        INVALID,
        '\n\n<information>Doc 1(Title: "T") Nobody.</information>\n\n',
        "\n\n<information>No results found.</information>\n\n",
        "",
    ]
    assert (machine.status, machine.reward, machine.valid) == (Status.ANSWERED, 1.0, True)
    assert machine.structure == "S1h X2 S3m S4e A"
    assert machine.stratum == "3"
    expected = {"num_turns": 5, "num_searches": 3, "num_attempted": 3, "num_empty": 1}
    expected |= {"num_repeated": 1, "num_invalid": 1, "num_hits": 1, "num_supporting": 1}
    expected |= {"num_dropped_chars": 5}
    assert machine.counts == dict.fromkeys(COUNTERS, 0) | expected
    episode = machine.episode()
    assert [s.source for s in episode.segments] == ["prompt"] + ["model", "environment"] * 4 + [
        "model"
    ]
    assert episode.segments[1].text == "<think>t</think>" + search("a  b")
    assert [c.status for c in episode.calls] == ["ok", "ok", "empty"]
    assert episode.calls[0].supporting == ("s1",)
    assert episode.calls[0].ranks == (1, 2)
    assert (episode.seed, episode.index_fingerprint, episode.answer) == (7, "f", "bob")
    assert from_json(to_json(episode)) == episode


def test_each_turn_in_the_record_says_how_it_was_read() -> None:
    machine = EpisodeMachine(QUESTION, rules())
    forged = "<information>x</information>"
    play(machine, forged, search(""), (search("a") + forged, [HIT]), "<answer>no</answer> more")
    turns = machine.episode().turns
    assert [(t.action, t.reason) for t in turns] == [
        ("invalid", "no_action"),
        ("invalid", "empty_query"),
        ("search", ""),
        ("answer", ""),
    ]
    assert [t.fabricated for t in turns] == [True, False, True, False]
    assert [t.dropped_chars for t in turns] == [0, 0, len(forged), 5]
    assert machine.counts["num_fabricated"] == 2
    assert all(forged not in s.text for s in machine.segments[2:])
    assert machine.reward == 0.0


def test_the_default_budget_lets_an_agent_search_fully_and_answer() -> None:
    machine = EpisodeMachine(QUESTION, rules(max_searches=2, max_turns=3))
    play(machine, search("a"), search("b"), "<answer>Ann</answer>")
    assert (machine.status, machine.reward) == (Status.ANSWERED, 1.0)


def test_on_the_last_turn_only_an_answer_counts() -> None:
    machine = EpisodeMachine(QUESTION, rules(max_searches=4, max_turns=2))
    play(machine, search("a"))
    assert machine.act(search("b")) == ()
    assert machine.observe() == ""
    assert machine.status is Status.TURN_LIMIT
    assert machine.counts["num_searches"] == 1
    assert machine.counts["num_over_budget"] == 1
    assert machine.counts["num_attempted"] == 2
    assert machine.structure == "S1e B2"
    assert machine.reward == 0.0
    assert machine.valid
    assert machine.episode().segments[-1].source == "model"


def test_a_search_over_budget_is_answered_with_a_sentence() -> None:
    machine = EpisodeMachine(QUESTION, rules(max_searches=1, max_turns=9))
    assert play(machine, search("a"), search("b"), "<answer>Ann</answer>")[1] == OVER_BUDGET
    assert machine.structure == "S1e B2 A"
    assert [c.status for c in machine.calls] == ["empty", "over_budget"]


def test_no_searches_at_all_is_a_legal_budget() -> None:
    machine = EpisodeMachine(QUESTION, rules(max_searches=0, max_turns=1))
    play(machine, "<answer>Ann</answer>")
    assert machine.reward == 1.0


def test_a_query_over_the_limit_is_invalid() -> None:
    machine = EpisodeMachine(QUESTION, rules(max_query_chars=3))
    assert play(machine, search("abcd"), search("abc"))[0] == INVALID
    assert machine.turns[0].reason == "query_too_long"
    assert machine.counts["num_searches"] == 1


def test_a_failed_search_voids_the_episode() -> None:
    machine = EpisodeMachine(QUESTION, rules())
    play(machine, search("a"))
    machine.act(search("b"))
    machine.void()
    assert (machine.status, machine.valid, machine.reward) == (Status.ERROR_SEARCH, False, 0.0)
    assert machine.structure == "S1e F2"
    assert machine.counts["num_failed"] == 1
    assert machine.counts["num_searches"] == 1
    assert machine.counts["num_attempted"] == 2
    assert machine.episode().calls[-1].status == "failed"


def test_a_retracted_action_leaves_no_trace() -> None:
    machine = EpisodeMachine(QUESTION, rules())
    play(machine, search("a"), "nothing")
    before = pickle.dumps([machine.segments, machine.turns, machine.calls, machine.counts])
    structure = machine.structure
    machine.act(search("b") + "rest")
    machine.retract()
    assert pickle.dumps([machine.segments, machine.turns, machine.calls, machine.counts]) == before
    assert machine.structure == structure
    play(machine, search("b"), "<answer>Ann</answer>")
    assert machine.structure == "S1e X2 S3e A"


def test_an_abandoned_episode_has_a_record() -> None:
    machine = EpisodeMachine(QUESTION, rules())
    play(machine, search("a"))
    machine.abandon()
    assert (machine.status, machine.valid, machine.reward) == (Status.EXTERNAL, True, 0.0)
    with pytest.raises(EpisodeError, match="already ended"):
        machine.abandon()


def test_calls_out_of_order_are_refused() -> None:
    machine = EpisodeMachine(QUESTION, rules())
    with pytest.raises(EpisodeError, match="call act"):
        machine.observe()
    with pytest.raises(EpisodeError, match="no record before its end"):
        machine.episode()
    machine.act(search("a"))
    with pytest.raises(EpisodeError, match="call observe"):
        machine.act("x")
    with pytest.raises(EpisodeError, match="1 queries need as many lists"):
        machine.observe([])
    machine.observe([[]])
    play(machine, "<answer>x</answer>")
    with pytest.raises(EpisodeError, match=r"has ended \(answered\)"):
        machine.act("x")


def test_supporting_passages_are_counted_once_each() -> None:
    machine = EpisodeMachine(QUESTION, rules())
    other = SearchHit(id="s2", contents="x", score=1.0)
    play(machine, (search("a"), [HIT]), (search("b"), [HIT, MISS]), (search("c"), [other, HIT]))
    assert machine.counts["num_supporting"] == 2


def test_an_unknown_supporting_set_is_marked() -> None:
    bare = Question(id="q", text="Who?", golden_answers=("Ann",))
    machine = EpisodeMachine(bare, rules())
    play(machine, (search("a"), [HIT]))
    assert machine.counts["num_supporting"] == -1


def test_a_template_is_filled_once_and_a_question_is_never_a_template() -> None:
    odd = Question(id="q", text="What is {question} in <answer>?", golden_answers=("x",))
    machine = EpisodeMachine(odd, rules(template="{q} {question}\n"))
    assert machine.prompt == "{q} What is {question} in <answer>?\n"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_searches", "1"),
        ("num_hits", "1"),
        ("structure", "S1h A"),
        (lambda counts, structure: counts["num_turns"] * 10, "20"),
    ],
)
def test_strata_are_strings_by_any_key(key: object, value: str) -> None:
    machine = EpisodeMachine(QUESTION, rules(stratum=key))
    play(machine, (search("a"), [HIT]), "<answer>x</answer>")
    assert machine.stratum == value
    assert machine.episode().stratum == value


class Pairs(SearchR1):
    """A protocol of two queries a turn, split at a bar."""

    __slots__ = ()

    def parse(self, text: str) -> Action:
        action = SearchR1.parse(self, text)
        if isinstance(action, Search):
            return Search(tuple(action.queries[0].split("|")), action.consumed)
        return action


def test_each_query_of_a_parallel_call_counts_one() -> None:
    machine = EpisodeMachine(QUESTION, Rules(protocol=Pairs(), max_searches=3, max_turns=9))
    assert machine.act(search("a|b")) == ("a", "b")
    assert machine.observe([[HIT], [MISS]]).count("Doc 1") == 2
    assert machine.act(search("a|d|e")) == ("a",)
    text = machine.observe([[HIT]])
    assert "Ann" in text
    assert text.endswith(OVER_BUDGET)
    assert machine.structure == "S1h S1m S2h B2 B2"
    assert [call.query for call in machine.calls] == ["a", "b", "a", "d", "e"]
    assert machine.counts["num_searches"] == 3
    assert machine.counts["num_repeated"] == 1
    assert machine.counts["num_over_budget"] == 2


@pytest.mark.parametrize("end", ["void", "abandon"])
def test_refused_queries_are_recorded_however_the_turn_ends(end: str) -> None:
    machine = EpisodeMachine(QUESTION, Rules(protocol=Pairs(), max_searches=1, max_turns=9))
    machine.act(search("a|b"))
    getattr(machine, end)()
    assert [call.query for call in machine.calls][-1] == "b"
    assert machine.counts["num_over_budget"] == 1
    assert machine.episode().structure.endswith("B1")


def test_a_hit_that_was_cut_away_does_not_count() -> None:
    long = SearchHit(id="s1", contents='"T"\n' + "x " * 100 + "Ann", score=1.0)
    for limit, hits in ((150, 0), (400, 1)):
        machine = EpisodeMachine(QUESTION, rules(max_observation_chars=limit))
        (text,) = play(machine, (search("a"), [long]))
        assert machine.counts["num_hits"] == ("Ann" in text) == hits
        assert machine.structure == ("S1h" if hits else "S1m")


def state(machine: EpisodeMachine) -> bytes:
    names = ("segments", "turns", "calls", "counts", "status", "answer", "reward_parts")
    inner = (machine._tokens, sorted(machine._asked), sorted(machine._found), machine._waiting)
    return pickle.dumps([[getattr(machine, name) for name in names], inner])


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -float("inf")])
def test_a_score_that_is_not_finite_is_refused_and_the_turn_taken_back(score: float) -> None:
    machine = EpisodeMachine(QUESTION, Rules(protocol=Pairs()))
    before = state(machine)
    machine.act(search("a|b"))
    bad = SearchHit(id="s2", contents="x", score=score)
    with pytest.raises(SearchProtocolError, match="not finite"):
        machine.observe([[HIT], [bad]])  # the first is counted by then
    machine.retract()
    assert state(machine) == before


class Failing(SearchR1):
    """A protocol whose parts fail on command."""

    __slots__ = ()
    fail: str = ""

    def parse(self, text: str) -> Action:
        return self._maybe("parse") or SearchR1.parse(self, text)

    def fabricated(self, text: str) -> bool:
        return self._maybe("fabricated") or SearchR1.fabricated(self, text)

    def invalid_message(self, reason: object) -> str:
        return self._maybe("invalid_message") or INVALID

    def _maybe(self, name: str) -> None:
        if Failing.fail == name:
            raise ZeroDivisionError(name)


@pytest.mark.parametrize("part", ["parse", "fabricated", "invalid_message"])
def test_a_protocol_that_fails_leaves_the_episode_as_it_was(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = EpisodeMachine(QUESTION, Rules(protocol=Failing()))
    play(machine, (search("a"), [HIT]))
    before = state(machine)
    monkeypatch.setattr(Failing, "fail", part)
    with pytest.raises(ZeroDivisionError):
        machine.act("nonsense")
    assert state(machine) == before
    monkeypatch.setattr(Failing, "fail", "")
    play(machine, "nonsense")
    assert machine.structure == "S1h X2"


pieces = st.sampled_from(
    ["<search>", "</search>", "<answer>", "</answer>", "<think>", "</think>", "Ann", "q", " "]
)
replies = st.lists(pieces, max_size=6).map("".join) | st.text(max_size=20)


@given(
    st.lists(st.tuples(replies, st.lists(st.sampled_from([HIT, MISS]), max_size=3)), min_size=12),
    st.integers(0, 3),
    st.integers(1, 6),
)
def test_any_play_ends_in_time_and_its_numbers_add_up(
    turns: list[tuple[str, list[SearchHit]]], max_searches: int, max_turns: int
) -> None:
    machine = EpisodeMachine(QUESTION, rules(max_searches=max_searches, max_turns=max_turns))
    for reply, found in turns:
        if machine.done:
            break
        play(machine, (reply, found))
    counts = machine.counts
    assert machine.done
    assert counts["num_turns"] <= max_turns
    assert counts["num_searches"] <= max_searches
    assert counts["num_attempted"] == (
        counts["num_searches"] + counts["num_failed"] + counts["num_over_budget"]
    )
    for part in ("num_empty", "num_repeated", "num_hits"):
        assert 0 <= counts[part] <= counts["num_searches"]
    assert len(machine.structure.split()) == counts["num_attempted"] + counts["num_invalid"] + (
        machine.status is Status.ANSWERED
    )
    episode = machine.episode()
    assert from_json(to_json(episode)) == episode
    models = [s.text for s in episode.segments if s.source == "model"]
    assert [len(m) for m in models] == [t.consumed_chars for t in episode.turns]
    assert all(reply.startswith(m) for m, (reply, _) in zip(models, turns, strict=False))
    assert episode.reward == (episode.answer.strip().lower() == "ann")
