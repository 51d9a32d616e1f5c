"""Settings: ready-made and own files, values that cannot be right, and what names a run."""

import dataclasses
import math
import tomllib
from importlib import resources

import pytest

from stratified_grpo.config import SftConfig, TrainConfig, load_config
from stratified_grpo.errors import ConfigError
from stratified_grpo.schedules import parse_schedule

READY = sorted(
    entry.name.removesuffix(".toml")
    for entry in (resources.files("stratified_grpo") / "configs").iterdir()
    if entry.name.endswith(".toml")
)


@pytest.mark.parametrize("name", READY)
def test_ready_made_configs_parse(name):
    config = load_config(name)
    assert 0.0 <= parse_schedule(config.alpha)(0) <= 1.0
    text = (resources.files("stratified_grpo") / "configs" / f"{name}.toml").read_text()
    for key, value in tomllib.loads(text).items():
        assert getattr(config, key) == value


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('alpha = 0.8\nlr = 1\nupdates = 7\nscale = false\nname = "é"\n')
    config = load_config(str(path))
    assert (config.alpha, config.lr, config.updates, config.scale) == ("0.8", 1.0, 7, False)
    assert isinstance(config.lr, float)
    assert dataclasses.replace(TrainConfig(), alpha="0.8").hash == dataclasses.replace(
        config, lr=TrainConfig().lr, updates=500, scale=True, name=""
    ).hash  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("alfa = 0.5", "has unknown keys: alfa"),
        ("lr = ", "is not TOML"),
        ('updates = "many"', "updates must be of type int, got 'many'"),
        ("updates = 1.5", "updates must be of type int, got 1.5"),
        ("updates = true", "updates must be of type int, got True"),
        ("lr = true", "lr must be of type float, got True"),
        ("scale = 1", "scale must be of type bool, got 1"),
        ("model = 3", "model must be of type str, got 3"),
        ("alpha = 1.5", "alpha must lie between 0"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path, text, says):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_config(str(path))


def test_a_config_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"no config file '.*nothing\.toml'"):
        load_config(str(tmp_path / "nothing.toml"))
    with pytest.raises(ConfigError, match=r"no ready-made config 'demmo'; there are .*demo"):
        load_config("demmo")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"alpha": "1.5"}, "alpha must lie between 0"),
        ({"alpha": "often"}, "alpha must be NUMBER or anneal"),
        ({"group_size": 1}, "group_size must be at least 2, got 1"),  # known fault 19
        ({"updates": 0}, "updates must be at least 1, got 0"),
        ({"save_every": 0}, "save_every must be at least 1"),
        ({"eval_every": -1}, "eval_every must be at least 0"),
        ({"lr": math.nan}, "lr must be at least 0, got nan"),
        ({"eps": -1e-9}, "eps must be at least 0"),
        ({"ddof": 2}, "ddof must be 0"),
        ({"min_stratum": 0}, "min_stratum must be at least 1"),
        ({"beta2": 1.5}, "beta2 must be below 1"),
        ({"beta1": 1.0}, "beta1 must be below 1, got 1.0"),
        ({"eps": math.inf}, "eps must be a finite number"),
        ({"lr": math.inf}, "lr must be a finite number"),
        ({"max_grad_norm": 0.0}, "max_grad_norm must be above 0 .inf clips nothing.*got 0.0"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"out": "a\0b"}, "out must not hold a null character"),
        ({"max_invalid": 1.5}, "max_invalid must be at most 1"),
        ({"loss_agg": "mean"}, "loss_agg must be token, sequence or constant, got 'mean'"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"env_kwargs": "{"}, "env_kwargs is not JSON"),
        ({"env_kwargs": "[1]"}, "env_kwargs must be a JSON object"),
    ],
)
def test_values_that_cannot_be_right(changes, says):
    with pytest.raises(ConfigError, match=says):
        TrainConfig(**changes)


def test_a_config_that_is_not_utf8(tmp_path):
    (tmp_path / "latin.toml").write_bytes(b'name = "caf\xe9"\n')
    with pytest.raises(ConfigError, match=r"latin\.toml' cannot be read as UTF-8 text"):
        load_config(str(tmp_path / "latin.toml"))


@pytest.mark.parametrize("changes", [{"steps": 0}, {"batch": 0}, {"lr": math.nan}])
def test_imitation_settings_that_cannot_be_right(tmp_path, changes):
    with pytest.raises(ConfigError, match=f"{next(iter(changes))} must be at least"):
        SftConfig(episodes=tmp_path, model="m", out=tmp_path, **changes)


def test_arguments_of_the_environment():
    config = TrainConfig(
        search="http://h:1", max_searches=2, top_k=5, env_kwargs='{"top_k": 7, "x": 1}'
    )
    assert config.environment("q.jsonl") == {
        "questions": "q.jsonl",
        "search": "http://h:1",
        "max_searches": 2,
        "top_k": 7,  # said more specifically
        "x": 1,
        "on_search_failure": "void",
    }
    assert "on_search_failure" not in TrainConfig(env_id="other:Text-v0").environment("q")
    given = TrainConfig(env_kwargs='{"on_search_failure": "raise"}').environment("q")
    assert given["on_search_failure"] == "raise"
    assert TrainConfig(prompt="{question}!").environment("q")["prompt"] == "{question}!"


def test_a_runs_identity_is_what_decides_its_course():
    base = TrainConfig()
    same = {"out": "x", "fresh": True, "updates": 9, "keep_checkpoints": 7, "save_episodes": False}
    assert dataclasses.replace(base, **same).identity() == base.identity()
    assert dataclasses.replace(base, name="x").hash == base.hash
    assert dataclasses.replace(base, seed=5).hash == base.hash
    for changes in ({"seed": 5}, {"lr": 0.5}, {"save_every": 3}, {"alpha": "0.1"}):
        assert dataclasses.replace(base, **changes).identity() != base.identity()
    assert dataclasses.replace(base, lr=0.5).hash != base.hash


def test_where_a_run_lives():
    config = TrainConfig(seed=3)
    assert str(config.folder) == f"runs/{config.hash}-s3"
    assert str(TrainConfig(name="try").folder) == "runs/try-s0"
    assert str(TrainConfig(name="try", out="/x/y").folder) == "/x/y"
