"""What goes wrong: arguments, options, calls out of order, and a search that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import pytest

from searchqa.env import SearchQAEnv
from searchqa.errors import ConfigError, EpisodeError, SearchProtocolError, SearchUnavailable
from searchqa.record import from_json
from searchqa.types import SearchHit

Make = Callable[..., gymnasium.Env[str, str]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"question_id": "zz"}, "question_id 'zz' is not in the given questions"),
        ({"index": 9}, r"index 9 is not in 0\.\.2"),
        ({"index": "two"}, "index must be an integer, not 'two'"),
        ({"question": "q0"}, r"question_id or index, one of the two, not \['question'\]"),
        ({"question_id": "q0", "index": 0}, "one of the two"),
    ],
)
def test_options_that_name_none_are_refused(
    make_env: Make, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env().reset(options=options)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"prompt": "no place"}, r"must contain \{question\}"),
        ({"reward": "f2"}, "reward='f2' is unknown; use one of em"),
        ({"protocol": "x"}, "protocol='x' is unknown"),
        ({"stratum": "x"}, "stratum='x' is unknown"),
        ({"on_search_failure": "ignore"}, "must be 'raise' or 'void'"),
        ({"max_searches": -1}, "max_searches=-1 must be an integer of at least 0"),
        ({"max_turns": 0}, "max_turns=0 must be an integer of at least 1"),
        ({"top_k": 0}, "top_k=0 must be an integer of at least 1"),
        ({"top_k": 2.5}, "top_k=2.5 must be an integer"),
        ({"top_k": True}, "top_k=True must be an integer"),
        ({"max_query_chars": 0}, "max_query_chars=0 must be"),
        ({"max_observation_chars": 10}, "max_observation_chars=10 must be an integer"),
        ({"max_searches": "4"}, "max_searches='4' must be an integer of at least 0"),
        ({"max_searches": None}, "max_searches=None must be an integer"),
        ({"max_turns": "4"}, "max_turns='4' must be an integer of at least 1"),
        ({"prompt": 5}, r"prompt=5 must be a text and must contain \{question\}"),
        ({"reward": []}, r"reward=\[\] is unknown"),
        ({"protocol": 5}, "protocol=5 is neither a name nor an ActionProtocol"),
        ({"stratum": []}, r"stratum=\[\] is unknown"),
        ({"search": 5}, "search=5 is neither a text nor has it"),
        ({"search": "http://127.0.0.1:9", "search_timeout_s": "9"}, "search_timeout_s .* not '9'"),
        ({"search": "http://127.0.0.1:9", "search_timeout_s": 1e300}, "search_timeout_s must be"),
        ({"questions": 5}, "questions='5' must be demo:SPLIT"),
        ({"questions": ["q.jsonl"]}, "or a sequence of Question"),
        ({"search": "http://your-host/"}, "no address of a service"),
        ({"questions": "nowhere.jsonl"}, "neither demo:train"),
    ],
)
def test_what_cannot_work_is_refused_at_construction(
    make_env: Make, kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(**kwargs)


def test_an_unknown_render_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="render_mode='human' must be None or 'ansi'"):
        SearchQAEnv("demo:train?passages=1000", render_mode="human")


def test_an_error_of_ours_is_a_gymnasium_error(make_env: Make) -> None:
    with pytest.raises(gymnasium.error.Error):
        make_env(top_k=0)


def test_calls_out_of_order_are_refused(make_env: Make) -> None:
    env = make_env().unwrapped
    with pytest.raises(EpisodeError, match="call reset"):
        env.step("x")
    env.reset(seed=0)
    with pytest.raises(EpisodeError, match="must be a string, not bytes"):
        env.step(b"x")
    env.step("<answer>x</answer>")
    with pytest.raises(EpisodeError, match="has ended"):
        env.step("x")


def test_any_failure_of_ones_own_search_leaves_the_episode(make_env: Make, scripted: type) -> None:
    env = make_env(search=scripted(KeyboardInterrupt(), RuntimeError()), on_search_failure="void")
    env.reset(seed=0)
    for error in (KeyboardInterrupt, RuntimeError):
        with pytest.raises(error):
            env.step("<search>a</search>")
    assert env.step("<search>a</search>")[-1]["structure"] == "S1e"


class BadSearch:
    """A search that first gives what it must not, then nothing found."""

    fingerprint = "bad"

    def __init__(self, bad: Any) -> None:
        self.bad = [bad]

    def search(self, queries: Any, top_k: int) -> Any:
        return self.bad.pop() if self.bad else [[] for _ in queries]

    def check_ready(self) -> None:
        pass


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        [None],
        [["text"]],
        [[SearchHit(id="a", contents=None, score=1.0)]],  # type: ignore[arg-type]
        [[SearchHit(id="a", contents="x", score="high")]],  # type: ignore[arg-type]
        [[SearchHit(id="a", contents="x", score=float("nan"))]],
    ],
)
@pytest.mark.parametrize("on_failure", ["raise", "void"])
def test_after_a_bad_result_the_step_can_be_tried_again(
    make_env: Make, bad: Any, on_failure: str
) -> None:
    env = make_env(search=BadSearch(bad), on_search_failure=on_failure)
    env.reset(seed=0)
    with pytest.raises((TypeError, AttributeError, EpisodeError, SearchProtocolError)):
        env.step("<search>a</search>")
    info = env.step("<search>a</search>")[-1]
    assert (info["structure"], info["num_searches"], info["num_repeated"]) == ("S1e", 1, 0)


def test_a_dead_search_can_void_the_episode(make_env: Make, scripted: type) -> None:
    env = make_env(search=scripted(SearchUnavailable("timed out")), on_search_failure="void")
    env.reset(seed=0)
    text, reward, terminated, truncated, info = env.step("<search>a</search>")
    assert (text, reward, terminated, truncated) == ("", 0.0, False, True)
    assert (info["valid"], info["status"], info["num_failed"]) == (False, "error_search", 1)
    assert info["num_searches"] == 0
    assert "timed out" not in info["record"]
    assert from_json(info["record"]).valid is False
    assert env.reset(seed=1)[1]["valid"] is True


def test_a_malformed_reply_is_raised_even_where_failures_void(
    make_env: Make, scripted: type
) -> None:
    env = make_env(search=scripted(SearchProtocolError("no result")), on_search_failure="void")
    env.reset(seed=0)
    with pytest.raises(SearchProtocolError):
        env.step("<search>a</search>")


def test_the_search_is_probed_once(make_env: Make, scripted: type) -> None:
    backend = scripted()
    env = make_env(search=backend)
    env.reset(seed=0)
    env.reset(seed=1)
    assert env.unwrapped.search.probes == 1


def test_an_unreachable_service_fails_the_first_reset_in_one_sentence(make_env: Make) -> None:
    env = make_env(search="http://127.0.0.1:9", search_timeout_s=0.3)
    with pytest.raises(SearchUnavailable, match=r"http://127\.0\.0\.1:9/ready did not answer"):
        env.reset(seed=0)


def test_a_dead_search_is_raised_and_the_step_may_be_repeated(
    make_env: Make, scripted: type
) -> None:
    hit = SearchHit(id="p0", contents="T\nParis", score=1.0)
    env = make_env(search=scripted(SearchUnavailable("gone"), [hit]))
    env.reset(options={"question_id": "q0"})
    with pytest.raises(SearchUnavailable, match="gone"):
        env.step("<search>a</search>")
    text, *_, info = env.step("<search>a</search>")
    assert "Paris" in text
    assert info["structure"] == "S1h"
    assert env.step("<answer>Paris</answer>")[1] == 1.0
