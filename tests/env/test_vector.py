from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

DEMO = "demo:train?passages=1000&hops=2"
make = partial(gymnasium.make, "searchqa:SearchQA-v0", questions=DEMO)
ACTIONS = (
    ("<search>director</search>", "nothing"),
    ("<answer>x</answer>", "<search>film</search>"),
    ("<search>late</search>", "<answer>y</answer>"),
)


def play(env: gymnasium.vector.VectorEnv[Any, Any, Any]) -> list[Any]:
    text, info = env.reset(seed=1)
    seen = [(text, sorted(info), list(info["question_id"]))]
    for actions in ACTIONS:
        text, reward, terminated, truncated, info = env.step(actions)
        seen.append((text, reward.tolist(), terminated.tolist(), truncated.tolist(), sorted(info)))
    env.close()
    return seen


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_processes_and_this_process_see_the_same(context: str) -> None:
    alone = play(SyncVectorEnv([make] * 2))
    apart = play(AsyncVectorEnv([make] * 2, shared_memory=False, context=context))
    assert apart == alone
    first, second = alone[0][2]
    assert first != second


def test_shared_memory_is_refused_and_not_silently_stale() -> None:
    with pytest.raises(ValueError, match="shared_memory=False"):
        AsyncVectorEnv([make] * 2)


def test_the_last_step_carries_everything_in_every_autoreset_mode() -> None:
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        env = SyncVectorEnv([make] * 2, autoreset_mode=mode)
        env.reset(seed=1)
        _, _, terminated, _, info = env.step(("<answer>x</answer>", "hm"))
        assert terminated.tolist() == [True, False]
        last = info["final_info"] if mode is AutoresetMode.SAME_STEP else info
        assert last["status"][0] == "answered"
        assert last["record"][0].startswith('{"schema"')
        env.close()


def test_disabled_autoreset_steps_groups_of_one_question() -> None:
    env = SyncVectorEnv([make] * 3, autoreset_mode=AutoresetMode.DISABLED)
    text, info = env.reset(seed=[4, 4, 4])
    assert len(set(text)) == 1
    assert len(set(info["question_id"])) == 1
    env.step(("<answer>x</answer>", "a", "b"))
    text, info = env.reset(
        seed=[5, None, None], options={"reset_mask": np.array([True, False, False])}
    )
    assert info["status"][0] == "running"
    env.close()


def test_an_index_goes_to_every_copy() -> None:
    env = gymnasium.make_vec("SearchQA-v0", num_envs=3, questions=DEMO)
    _, info = env.reset(options={"index": 3})
    assert len(set(info["question_id"])) == 1
    env.close()
