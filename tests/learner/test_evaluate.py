"""Evaluation: known intervals, scores by hops, and no influence of the batch."""

import json

import pytest

from stratified_grpo import evaluate as module
from stratified_grpo.environments import EnvironmentPool
from stratified_grpo.errors import ConfigError, TrainingError
from stratified_grpo.evaluate import evaluate, wilson
from stratified_grpo.samplers.hf import HFSampler
from stratified_grpo.samplers.scripted import ScriptedSampler


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(5, 10, 0.2366, 0.7634), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0),
     (81, 263, 0.2553, 0.3662), (1, 1, 0.2065, 1.0)],
)  # fmt: skip
def test_wilson_intervals_of_the_textbooks(successes, trials, low, high):
    assert wilson(successes, trials) == pytest.approx((low, high), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)


def right(fake_env, *, after=0):
    """A policy that knows every answer, and searches ``after`` times first."""
    answers = {fake_env.prompt_of(n): f"<answer>{fake_env.answer_of(n)}</answer>" for n in range(8)}

    def policy(request, text):
        if request.key[-1] < after:
            return "<search> x </search>"
        return next(a for prompt, a in answers.items() if text.startswith(prompt))

    return policy


def test_scores_of_a_policy_that_knows(make_pool, codec, settings, fake_env):  # known fault 123
    sampler = ScriptedSampler(codec, right(fake_env, after=1))
    given = settings(max_turn_tokens=30)
    result = evaluate(make_pool(), sampler, codec, given)
    assert [score.name for score in result.scores] == ["all", "hops=1", "hops=2"]
    assert [score.questions for score in result.scores] == [8, 4, 4]
    for score in result.scores:
        assert (score.em, score.searches, score.answered) == (1.0, 1.0, 1.0)
        assert (score.low, score.high) == wilson(score.questions, score.questions)
    assert (result.metric, result.temperature, result.invalid) == ("em", 0.0, 0)
    assert result.overall is result.scores[0]


def test_a_policy_that_guesses_is_right_where_the_guess_is(make_pool, codec, settings, fake_env):
    guess = f"<answer>{fake_env.answer_of(2)}</answer>"
    sampler = ScriptedSampler(codec, lambda *_: guess)
    result = evaluate(make_pool(), sampler, codec, settings(max_turn_tokens=30))
    assert [score.em for score in result.scores] == [1 / 8, 1 / 4, 0.0]
    assert result.overall.searches == 0.0


def test_voided_episodes_are_left_out_and_counted(make_pool, codec, settings):
    sampler = ScriptedSampler(codec, lambda *_: "even")
    result = evaluate(make_pool(questions="8:void"), sampler, codec, settings())
    assert result.invalid == 8
    assert result.overall.questions == 0
    assert (result.overall.em, result.overall.low, result.overall.high) == (0.0, 0.0, 1.0)
    result.require_valid(1.0)
    with pytest.raises(TrainingError, match=r"8 of 8 episodes of an evaluation are invalid.*0\.5"):
        result.require_valid(0.5)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_same_evaluation_twice_is_identical(make_pool, still, codec, settings, temperature):
    runs = [
        evaluate(make_pool(), HFSampler(still), codec, settings(), temperature=temperature)
        for _ in range(2)
    ]
    assert runs[0] == runs[1]


def test_a_greedy_evaluation_does_not_depend_on_its_batches(
    make_pool, still, codec, settings, monkeypatch
):  # known fault 124
    seen = {}
    for batch in (128, 3, 1):
        monkeypatch.setattr(module, "_BATCH", batch)
        collected = []
        collect = module.collect

        def noting(*args, collected=collected, collect=collect, **kwargs):
            groups = collect(*args, **kwargs)
            collected.extend(group.rollouts[0].tokens.ids for group in groups)
            return groups

        monkeypatch.setattr(module, "collect", noting)
        seen[batch] = (evaluate(make_pool(), HFSampler(still), codec, settings()), collected)
        monkeypatch.setattr(module, "collect", collect)
    assert seen[128] == seen[3] == seen[1]
    assert len(seen[1][1]) == 8


def test_no_two_questions_share_a_random_stream(make_pool, codec, settings, monkeypatch):
    keys = []

    def policy(request, _):
        keys.append(request.key)
        return "<answer>x</answer>"

    monkeypatch.setattr(module, "_BATCH", 3)
    evaluate(make_pool(), ScriptedSampler(codec, policy), codec, settings(), temperature=1.0)
    assert len(set(keys)) == len(keys) == 8


def test_limits(make_pool, codec, settings, fake_env):
    sampler = ScriptedSampler(codec, right(fake_env))
    given = settings(max_turn_tokens=30)
    few = evaluate(make_pool(), sampler, codec, given, limit=3)
    assert few.overall.questions == 3
    many = evaluate(make_pool(), sampler, codec, given, limit=99)
    assert many.overall.questions == 8
    unknown = make_pool(drop="num_questions")
    assert evaluate(unknown, sampler, codec, given, limit=5).overall.questions == 5
    with pytest.raises(ConfigError, match="give a limit"):
        evaluate(unknown, sampler, codec, given)


@pytest.mark.parametrize("change", [{"drop": "em"}, {"em_type": "text"}])
def test_an_environment_without_the_metric_is_no_score_of_zero(make_pool, codec, settings, change):
    sampler = ScriptedSampler(codec, lambda *_: "<answer>x</answer>")
    with pytest.raises(ConfigError, match=r"8 of 8 episodes have no number 'em' in their info"):
        evaluate(make_pool(**change), sampler, codec, settings(max_turn_tokens=30))


@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "bool_"])
def test_scores_may_be_numpy_scalars(make_pool, codec, settings, fake_env, kind):
    sampler = ScriptedSampler(codec, right(fake_env))
    result = evaluate(make_pool(em_type=kind), sampler, codec, settings(max_turn_tokens=30))
    assert result.overall.em == 1.0


def test_an_environment_without_hops_has_one_score(make_pool, codec, settings):
    sampler = ScriptedSampler(codec, lambda *_: "<answer>x</answer>")
    result = evaluate(make_pool(drop="hops"), sampler, codec, settings(max_turn_tokens=30))
    assert [score.name for score in result.scores] == ["all"]


def test_lines_of_the_log_are_kept_once_a_step(make_pool, codec, settings, tmp_path):
    sampler = ScriptedSampler(codec, lambda *_: "<answer>x</answer>")
    result = evaluate(make_pool(), sampler, codec, settings(max_turn_tokens=30))
    path = tmp_path / "eval.jsonl"
    for step in (0, 2, 4, 2):
        result.append(path, step)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 2]
    assert lines[0]["scores"][0]["name"] == "all"
    assert json.loads(result.to_json())["metric"] == "em"


def test_the_pool_reuses_its_environments(make_pool):
    pool = make_pool()
    first = pool.take(2)
    assert pool.take(3)[:2] == first
    assert pool.check() == 8
    pool.close()
    assert pool.take(1)[0] not in first
    assert isinstance(pool, EnvironmentPool)
