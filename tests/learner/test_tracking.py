"""Logs survive kills: whole lines only, each step once."""

import json
import math

from stratified_grpo.tracking import MetricsLog, write_episodes, write_manifest


def test_lines_are_appended_and_read_back(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    assert log.read() == []
    log.truncate(3)  # nothing there yet
    log.append(1, {"reward": 0.5, "stratum/é\u2028x": 1.0})
    log.append(2, {"reward": math.nan, "loss": -math.inf})
    assert log.read() == [
        {"step": 1, "reward": 0.5, "stratum/é\u2028x": 1.0},
        {"step": 2, "reward": None, "loss": None},
    ]


def test_truncating_drops_later_steps_and_a_torn_last_line(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step in (1, 2, 3):
        log.append(step, {"reward": step})
    with log.path.open("a") as file:
        file.write('{"step": 4, "rew')
    assert [line["step"] for line in log.read()] == [1, 2, 3]
    log.truncate(2)
    assert log.path.read_text() == '{"step": 1, "reward": 1.0}\n{"step": 2, "reward": 2.0}\n'
    log.truncate(0)
    assert log.path.read_text() == ""


def test_episodes_are_one_line_each(tmp_path):
    path = tmp_path / "episodes" / "step_1.jsonl"
    write_episodes(path, ['{"a": 1}', "", '{"b": 2}'])
    assert path.read_text() == '{"a": 1}\n{"b": 2}\n'
    write_episodes(path, [])
    assert path.read_text() == ""


def test_the_manifest_names_what_decides_the_numbers(tmp_path, monkeypatch):
    write_manifest(tmp_path / "manifest.json", {"lr": 0.1}, {"threads": 2})
    document = json.loads((tmp_path / "manifest.json").read_text())
    assert document["config"] == {"lr": 0.1}
    assert document["threads"] == 2
    assert document["versions"]["torch"][0].isdigit()
    assert document["python"].startswith("3.")


def test_a_package_that_is_not_installed_is_said_to_be_missing(tmp_path, monkeypatch):
    from importlib import metadata

    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    write_manifest(tmp_path / "manifest.json", {}, {})
    versions = json.loads((tmp_path / "manifest.json").read_text())["versions"]
    assert set(versions.values()) == {"not installed"}
