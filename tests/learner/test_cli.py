"""The command line: help without torch, one sentence for a mistake, nothing half-written."""

import tomllib

import gymnasium
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from stratified_grpo import commands
from stratified_grpo.cli import COMMANDS, main
from stratified_grpo.config import TrainConfig
from stratified_grpo.errors import LearnerError

LIGHT = """
import sys
from stratified_grpo.cli import main
for command in sys.argv[1:]:
    try:
        main([command, "--help"])
    except SystemExit as stop:
        assert not stop.code, command
heavy = sorted({"torch", "transformers"} & set(sys.modules))
sys.exit(f"imported {heavy}" if heavy else 0)
"""


def one_sentence(capsys):
    """What went to stderr: one line, said by the program, without a traceback."""
    _, err = capsys.readouterr()
    assert err.startswith("stratified-grpo: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def test_help_needs_no_torch(run_cli):
    done = run_cli(*COMMANDS, code=LIGHT)
    assert done.returncode == 0, done.stderr
    for option in ("--alpha", "--episodes", "--limit", "--vocabulary", "--min-reward"):
        assert option in done.stdout


def test_the_overview(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)
    assert main([]) == 2
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip().splitlines()[-1][0].isdigit()


def test_every_command_exists():
    assert all(callable(getattr(commands, name.replace("-", "_"))) for name in COMMANDS)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["learn"], "there is no command 'learn'; there are train, eval"),
        (["train", "--alpha", "1.5"], "alpha must lie between 0"),
        (["train", "--group-size", "1"], "group_size must be at least 2"),
        (["train", "--config", "demmo"], "no ready-made config 'demmo'"),
        (["train", "--config", "no.toml"], "no config file 'no.toml'"),
        (["train", "--config"], "--config needs a value"),
        (["train", "--env-kwargs", "{"], "env_kwargs is not JSON"),
        (["train", "--model", "no/such/model/here"], "cannot load a model"),
        (["train", "--model=no/such/model/here", "--kl-coef", "0.1"], "cannot load a model"),
        (["eval", "--model", "no/such/model/here"], "cannot load a model"),
        (["eval", "--limit", "-1"], "limit must be at least 0"),
        (["update"], "update needs --episodes FILE"),
        (["update", "--episodes", "no.jsonl", "--out", "x"], "no file no.jsonl"),
        (["sft", "--episodes", "no.jsonl", "--model", "m", "--out", "x"], "no file no.jsonl"),
        (["init-tiny", "--episodes", "no.jsonl", "--out", "x"], "no file no.jsonl"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(args, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    assert says in one_sentence(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "args",
    [["train", "--updates", "many"], ["train", "--colour", "red"], ["eval", "--limit", "x"],
     ["sft"], ["init-tiny"]],
)  # fmt: skip
def test_what_cannot_be_parsed_exits_with_2(args, capsys):
    with pytest.raises(SystemExit) as stop:
        main(args)
    assert stop.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_toml_file_with_an_unknown_key(tmp_path, capsys):
    (tmp_path / "mine.toml").write_text("alfa = 0.5\n")
    assert main(["train", "--config", str(tmp_path / "mine.toml")]) == 2
    assert "unknown keys: alfa" in one_sentence(capsys)


def printed(capsys, *args):
    assert main(["train", "--print-config", *args]) == 0
    return capsys.readouterr().out


def test_a_printed_config_is_that_config(capsys, tmp_path):
    args = ["--config", "demo", "--lr", "3e-5", "--no-scale", "--alpha", "0.25", "--name", 'a"\\b']
    text = printed(capsys, *args)
    (tmp_path / "again.toml").write_text(text)
    again = printed(capsys, "--config", str(tmp_path / "again.toml"))
    assert again == text
    values = tomllib.loads(text)
    assert (values["lr"], values["scale"], values["alpha"], values["name"]) == (
        3e-5,
        False,
        "0.25",
        'a"\\b',
    )
    assert TrainConfig(**values) == commands.train_config(args)


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs"])), number=st.floats(0, 1e300))
def test_any_value_can_be_written_as_toml(text, number):
    line = f"a = {commands._toml(text)}\nb = {commands._toml(number)}\nc = {commands._toml(7)}\n"
    assert tomllib.loads(line) == {"a": text, "b": number, "c": 7}


def test_where_a_run_will_live(capsys):
    assert main(["train", "--print-folder", "--name", "mine", "--seed", "4"]) == 0
    assert capsys.readouterr().out == "runs/mine-s4\n"


def test_what_the_parser_itself_refuses_is_one_sentence(capsys, monkeypatch):
    def fails(*args, **options):
        raise ValueError("no such thing")

    monkeypatch.setattr(commands.tyro, "cli", fails)
    assert main(["eval"]) == 2
    assert "no such thing" in one_sentence(capsys)


def test_another_model_means_the_defaults_for_real_models():
    assert commands.train_config([]).model == "demo"
    assert commands.train_config([]).max_turn_tokens == 24
    other = commands.train_config(["--model", "m", "--lr", "0.5"])
    assert (other.model, other.lr) == ("m", 0.5)
    assert other.max_turn_tokens == TrainConfig().max_turn_tokens
    assert commands.train_config(["--config=demo", "--model", "m"]).max_turn_tokens == 24


def test_a_missing_extra_says_what_to_install(capsys, monkeypatch):
    import builtins

    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "stratified_grpo" and "commands" in (args[2] or ()):
            raise ModuleNotFoundError("No module named 'tyro'", name="tyro")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["train"]) == 2
    assert "no module 'tyro': pip install 'searchqa[learner]'" in one_sentence(capsys)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), 130),
        (LearnerError("no"), 2),
        (ValueError("bug"), -1),
        (gymnasium.error.ResetNeeded("bug"), -1),
    ],
)
def test_how_commands_end(error, code, capsys, monkeypatch):
    def fails(args):
        raise error

    monkeypatch.setattr(commands, "train", fails)
    if code == -1:  # a fault of ours is not dressed up as the user's
        with pytest.raises(type(error), match="bug"):
            main(["train"])
        return
    assert main(["train"]) == code
    one_sentence(capsys)
