"""What the commands do, on the fake environment."""

import json

import pytest
from safetensors.torch import load_file

from stratified_grpo.cli import main
from stratified_grpo.commands import EvalConfig, train_config
from stratified_grpo.config import TrainConfig
from stratified_grpo.environments import EnvironmentPool
from stratified_grpo.errors import ConfigError
from stratified_grpo.policy import load_policy


@pytest.fixture
def base(tiny_folder):
    """Options of a short run."""
    options = {
        "model": tiny_folder,
        "env-id": "fake_text_env:FakeText-v0",
        "questions": 8,
        "max-searches": 2,
        "alpha": 0.5,
        "updates": 2,
        "prompts-per-update": 2,
        "group-size": 4,
        "max-turn-tokens": 10,
        "max-episode-tokens": 120,
        "lr": 1e-3,
        "warmup": 0,
        "save-every": 1,
        "threads": 1,
    }

    def make(**changes):
        merged = {**options, **{k.replace("_", "-"): v for k, v in changes.items()}}
        return [part for key, value in merged.items() for part in (f"--{key}", str(value))]

    return make


def test_train_then_the_same_command_again(base, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = ["train", *base(name="mine", eval_questions=4)]
    assert main(args) == 0
    first = capsys.readouterr().out
    assert "update 2: reward" in first
    assert "evaluation after 2 updates" in first
    assert "done: runs/mine-s0 (weights in checkpoints/step_2)" in first
    before = (tmp_path / "runs" / "mine-s0" / "metrics.jsonl").read_bytes()
    assert main(args) == 0
    again = capsys.readouterr().out
    assert "runs/mine-s0 is finished (2 updates); --fresh starts anew" in again
    assert "update 1" not in again
    assert (tmp_path / "runs" / "mine-s0" / "metrics.jsonl").read_bytes() == before
    assert main([*args, "--updates", "3"]) == 0
    assert "update 3: reward" in capsys.readouterr().out
    assert main([*args, "--lr", "0.5"]) == 2
    assert "different: lr (0.001 there, 0.5 here)" in capsys.readouterr().err
    assert main([*args, "--fresh"]) == 0
    assert "update 1: reward" in capsys.readouterr().out


def test_a_name_is_not_markup(base, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["train", *base(name="a[/red]", updates=1)]) == 0
        assert "runs/a[/red]-s0 " in capsys.readouterr().out.splitlines()[-1]


def test_a_folder_that_cannot_be_made_is_a_mistake(base, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    for where in ({"name": "x" * 300}, {"out": "file/run"}, {"out": "file"}):
        assert main(["train", *base(**where)]) == 2
        err = capsys.readouterr().err
        assert "give " in err
        assert err.count("\n") == 1
    assert [path.name for path in tmp_path.rglob("*")] == ["file"]


def test_a_run_that_must_stop_exits_with_1_and_keeps_its_checkpoint(base, tmp_path, capsys):
    out = tmp_path / "run"
    args = base(questions="8:void", max_invalid=0.0, out=out)
    assert main(["train", *args]) == 1
    err = capsys.readouterr().err
    assert "more than max_invalid=0.0 allows; the last checkpoint is intact" in err
    assert (out / "checkpoints" / "latest").read_text() == "step_0"
    load_policy(out / "checkpoints" / "step_0")


def test_an_environment_that_cannot_start_is_a_mistake(base, tmp_path, capsys):
    args = base(env_kwargs='{"bad_reset": true}', out=tmp_path / "run")
    assert main(["train", *args]) == 2
    err = capsys.readouterr().err
    assert "cannot start: no search service at this address" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_an_environment_that_fails_later_stops_the_run(base, tmp_path, capsys):
    args = base(env_kwargs='{"crash_after": 3}', out=tmp_path / "run", updates=9)
    assert main(["train", *args]) == 1
    err = capsys.readouterr().err
    assert err == "stratified-grpo: the search service went away\n"
    assert (tmp_path / "run" / "checkpoints" / "latest").read_text().startswith("step_")


def evaluated(capsys, *args):
    assert main(["eval", *args]) == 0
    return capsys.readouterr().out


def test_eval_of_a_run_and_of_a_model(base, tmp_path, capsys, tiny_folder):
    out = tmp_path / "run"
    assert main(["train", *base(out=out)]) == 0
    capsys.readouterr()
    found = json.loads(evaluated(capsys, "--model", str(out), "--questions", "6", "--json"))
    assert [score["name"] for score in found["scores"]] == ["all", "hops=1", "hops=2"]
    assert found["scores"][0]["questions"] == 6
    assert (found["metric"], found["temperature"]) == ("em", 0.0)
    limited = evaluated(capsys, "--model", str(out), "--questions", "8", "--limit", "3", "--json")
    assert json.loads(limited)["scores"][0]["questions"] == 3
    table = evaluated(capsys, "--model", str(out), "--questions", "8", "--sampled")
    assert "8 (all)" in table
    config = tmp_path / "own.toml"
    config.write_text(
        'env_id = "fake_text_env:FakeText-v0"\nmax_turn_tokens = 5\nmax_episode_tokens = 90\n'
    )
    args = ("--model", str(tiny_folder), "--questions", "4", "--config", str(config), "--json")
    assert json.loads(evaluated(capsys, *args))["scores"][0]["questions"] == 4


def test_eval_asks_what_the_run_asked_where_the_run_searched(base, tmp_path, capsys, monkeypatch):
    out, seen = tmp_path / "run", []
    args = base(out=out, eval_questions=5, search="embedded:here", dtype="float64")
    assert main(["train", *args, "--updates", "1"]) == 0
    capsys.readouterr()

    class Noting(EnvironmentPool):
        def __init__(self, env_id, kwargs, *, stratum):
            seen.append((kwargs["questions"], kwargs["search"]))
            super().__init__(env_id, kwargs, stratum=stratum)

    def noting(path, **options):
        seen.append(options)
        return load_policy(path, **options)

    monkeypatch.setattr("stratified_grpo.environments.EnvironmentPool", Noting)
    monkeypatch.setattr("stratified_grpo.policy.load_policy", noting)
    found = json.loads(evaluated(capsys, "--model", str(out), "--json"))
    assert found["scores"][0]["questions"] == 5
    assert seen == [{"device": "cpu", "dtype": "float64"}, ("5", "embedded:here")]
    seen.clear()
    given = ("--questions", "3", "--search", "there", "--dtype", "float32", "--threads", "1")
    found = json.loads(evaluated(capsys, "--model", str(out), *given, "--json"))
    assert found["scores"][0]["questions"] == 3
    assert seen == [{"device": "cpu", "dtype": "float32"}, ("3", "there")]
    assert main(["eval", "--model", str(out), "--device", "gpu7"]) == 2
    assert "device 'gpu7' cannot be used here" in capsys.readouterr().err


def test_what_eval_asks_without_a_run(capsys, monkeypatch):
    asked = []

    class Stopped(EnvironmentPool):
        def __init__(self, env_id, kwargs, *, stratum):
            asked.append(kwargs["questions"])
            raise ConfigError("stop here")

    monkeypatch.setattr("stratified_grpo.environments.EnvironmentPool", Stopped)
    monkeypatch.setattr("stratified_grpo.policy.load_policy", lambda *_, **__: None)
    for args in ([], ["--questions", "q"]):
        assert main(["eval", *args]) == 2
    assert asked == ["demo:test", "q"]
    demo = EvalConfig().over(TrainConfig())
    assert (demo.eval_questions, demo.search) == ("demo:test", "embedded")
    with pytest.raises(ConfigError, match="threads must be at least 0"):
        EvalConfig(threads=-1)


def test_update_from_files_of_episodes(base, tmp_path, capsys):
    run, out = tmp_path / "run", tmp_path / "updated"
    assert main(["train", *base(out=run)]) == 0
    files = [str(run / "episodes" / f"step_{step}.jsonl") for step in (1, 2)]
    given = [part for file in files for part in ("--episodes", file)]
    capsys.readouterr()
    assert main(["update", *given, *base(out=out)]) == 0
    shown = capsys.readouterr().out
    assert "update 1: reward" in shown
    assert "update 2: reward" in shown
    name = "checkpoints/step_2/model.safetensors"
    ours, theirs = load_file(out / name), load_file(run / name)
    assert all(bool((ours[key] == theirs[key]).all()) for key in theirs)
    assert json.loads((out / "manifest.json").read_text())["episodes"] == [
        "step_1.jsonl",
        "step_2.jsonl",
    ]


def test_update_warms_up_only_when_asked(capsys):
    assert train_config([], warmup=0).warmup == 0
    assert train_config(["--model", "m"], warmup=0).warmup == 0
    assert train_config(["--warmup", "7"], warmup=0).warmup == 7
    assert train_config(["--config", "demo"], warmup=0).warmup == train_config([]).warmup == 5


def test_update_and_sft_refuse_what_cannot_be_trained_on(base, tmp_path, capsys, tiny_folder):
    run, out = tmp_path / "run", tmp_path / "out"
    assert main(["train", *base(out=run, updates=1)]) == 0
    text = (run / "episodes" / "step_1.jsonl").read_text()
    records = [json.loads(line) for line in text.splitlines()]
    capsys.readouterr()

    def refused(*args):
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        assert main([args[0], "--episodes", str(file), *args[1:]]) == 2
        assert not out.exists()
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        return err

    file = tmp_path / "records.jsonl"
    names = [record["group"] for record in records]
    for number, record in enumerate(records):
        record["group"] = str(number)
    assert "none of the 8 groups has two rollouts" in refused("update", *base(out=out))
    for name, record in zip(names, records, strict=True):
        record["group"] = name
        record["segments"][0]["text"] *= 200
    for command in (
        ["update", *base(out=out)],
        ["sft", "--model", str(tiny_folder), "--out", str(out)],
    ):
        assert "records.jsonl, line 1: the episode has" in refused(*command)


def test_update_refuses_and_leaves_nothing(base, tmp_path, capsys):
    bad = tmp_path / "bad.jsonl"
    bad.write_text("\n\n{not json\n")
    out = tmp_path / "updated"
    assert main(["update", "--episodes", str(bad), *base(out=out)]) == 2
    err = capsys.readouterr().err
    assert "bad.jsonl, line 3: not JSON" in err
    assert err.count("\n") == 1
    assert main(["update", "--episodes", str(bad), *base()]) == 2
    assert "needs --out DIR" in capsys.readouterr().err
    assert not out.exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    assert main(["update", "--episodes", str(bad), *base(out=tmp_path / "full")]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["train", *base(out=bad)]) == 2
    assert "is a file" in capsys.readouterr().err


@pytest.fixture
def episodes(base, tmp_path):
    assert main(["train", *base(out=tmp_path / "source", updates=1)]) == 0
    return tmp_path / "source" / "episodes" / "step_1.jsonl"


def test_a_policy_from_nothing_and_its_warm_start(episodes, tmp_path, capsys):
    model, trained = tmp_path / "tiny", tmp_path / "trained"
    shape = ("--vocabulary", "320", "--width", "32", "--layers", "1")
    start = ["init-tiny", "--episodes", str(episodes), "--out", str(model), *shape]
    assert main(start) == 0
    assert load_policy(model).model.config.num_hidden_layers == 1
    warm = ["sft", "--episodes", str(episodes), "--model", str(model), "--out", str(trained)]
    assert main([*warm, "--steps", "2", "--batch", "4", "--threads", "1"]) == 0
    shown = capsys.readouterr().out
    assert "step 1 of 2: loss" in shown
    assert "step 2 of 2: loss" in shown
    before, after = (load_file(f / "model.safetensors") for f in (model, trained))
    assert any(bool((before[name] != after[name]).any()) for name in before)
    assert main([*warm, "--steps", "1", "--batch", "4"]) == 0  # a model gives way to a model


def test_what_is_not_a_model_never_gives_way_to_one(episodes, tmp_path, capsys, tiny_folder):
    precious = tmp_path / "home"
    precious.mkdir()
    (precious / "thesis.tex").write_text("precious")
    common = ["--episodes", str(episodes), "--out"]
    for command in (["init-tiny"], ["sft", "--model", str(tiny_folder)]):
        assert main([*command, *common, str(precious)]) == 2
        assert "holds no model; give another --out" in capsys.readouterr().err
        assert main([*command, *common, str(precious / "thesis.tex")]) == 2
        assert "is a file" in capsys.readouterr().err
    assert (precious / "thesis.tex").read_text() == "precious"
    assert main(["init-tiny", *common, str(tmp_path / "x"), "--vocabulary", "100"]) == 2
    assert "vocabulary must be at least 300" in capsys.readouterr().err
