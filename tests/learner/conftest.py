"""A tiny random policy, a fake text environment, and helpers to build rollouts by hand."""

from __future__ import annotations

import gzip
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch

from stratified_grpo.codec import Codec
from stratified_grpo.demo.tiny import write_tiny_model
from stratified_grpo.environments import EnvironmentPool
from stratified_grpo.policy import Policy, load_policy
from stratified_grpo.rollout import RolloutSettings
from stratified_grpo.types import Group, Rollout, TokenRow

HERE = Path(__file__).parent
ENV_ID = "fake_text_env:FakeText-v0"
MAIN = "import sys; from stratified_grpo.cli import main; sys.exit(main())"


def _import(name: str) -> Any:
    """Import a module that lies beside this file, under its plain name (as subprocesses do)."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


hypothesis.settings.register_profile("learner", deadline=None)  # the machine may be busy
hypothesis.settings.load_profile("learner")
torch.set_num_threads(1)
fake = sys.modules.get("fake_text_env") or _import("fake_text_env")


def _texts() -> list[str]:
    words = fake.WORDS
    return [
        f"{fake.prompt_of(n)}<search> {words[n]} </search>\n\n<information>{words[n]} "
        f"</information>\n\n<answer> {fake.answer_of(n)} </answer> Please search or answer. é東京😀"
        for n in range(len(words))
    ]


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random policy of 20,000 parameters with its tokenizer."""
    folder = tmp_path_factory.mktemp("tiny") / "model"
    write_tiny_model(folder, _texts(), vocabulary=400, width=32, layers=2, heads=1, seed=1)
    model, generator = load_policy(folder).model, torch.Generator().manual_seed(1)
    with torch.no_grad():  # as large as it takes for the context to matter
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.copy_(0.24 * torch.randn(parameter.shape, generator=generator))
            else:
                parameter.fill_(1.0)
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def tiny(tiny_folder: Path) -> Policy:
    """A fresh copy of the tiny policy."""
    return load_policy(tiny_folder)


@pytest.fixture(scope="session")
def still(tiny_folder: Path) -> Policy:
    """One copy for all tests that leave the weights alone."""
    return load_policy(tiny_folder)


@pytest.fixture(scope="session")
def codec(still: Policy) -> Codec:
    return still.codec


@pytest.fixture(scope="session")
def fake_env() -> Any:
    """The module of the fake environment."""
    return fake


@pytest.fixture
def make_pool() -> Any:
    """Return a function that makes pools of the fake environment; closed at the end."""
    pools: list[EnvironmentPool] = []

    def make(stratum: str = "stratum", **kwargs: Any) -> EnvironmentPool:
        pools.append(EnvironmentPool(ENV_ID, kwargs, stratum=stratum))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture(scope="session")
def settings() -> Callable[..., RolloutSettings]:
    """Return a function that makes rollout settings from a few changes."""

    def make(**changes: Any) -> RolloutSettings:
        values = {
            "group_size": 2,
            "temperature": 1.0,
            "max_turn_tokens": 8,
            "max_episode_tokens": 200,
            "seed": 0,
        }
        return RolloutSettings(**{**values, **changes})

    return make


def token_row(
    parts: Sequence[tuple[int, Sequence[int]]], logprobs: Sequence[float] = ()
) -> TokenRow:
    """A row from (mask, ids) parts; log-probabilities of the sampled tokens in order, or -1."""
    row, given = TokenRow(), list(logprobs)
    for mask, ids in parts:
        if mask:
            taken, given = given[: len(ids)], given[len(ids) :]
            row.sampled(ids, taken or [-1.0] * len(ids), [0] * len(ids))
        else:
            row.context(ids)
    return row


def rollout_of(row: TokenRow, **changes: Any) -> Rollout:
    values: dict[str, Any] = {
        "group": "g",
        "stratum": "0",
        "reward": 0.0,
        "valid": True,
        "status": "answered",
    }
    return Rollout(tokens=row, **{**values, **changes})


def group_of(key: str, rollouts: Sequence[Rollout]) -> Group:
    return Group(key=key, cursor=0, rollouts=tuple(rollouts))


@pytest.fixture(scope="session")
def build() -> Any:
    """The three builders, as attributes: ``row``, ``rollout``, ``group``."""

    class Build:
        row = staticmethod(token_row)
        rollout = staticmethod(rollout_of)
        group = staticmethod(group_of)

    return Build


@pytest.fixture(scope="session")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The real Qwen3 tokenizer."""
    data = os.environ.get("SEARCHQA_TEST_DATA", "")
    if not data:
        if os.environ.get("CI") == "true":
            pytest.fail("SEARCHQA_TEST_DATA is unset, and under CI the real data must be there")
        pytest.skip("needs the Qwen3 tokenizer: set SEARCHQA_TEST_DATA to the real data's folder")
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("qwen3")
    for packed in (Path(data) / "tokenizers" / "qwen3").glob("*.gz"):
        (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    return AutoTokenizer.from_pretrained(str(folder))


@pytest.fixture(scope="session")
def run_cli() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs ``stratified-grpo`` in a process of its own."""

    def run(*args: str, cwd: Path | None = None, code: str = MAIN) -> Any:
        return subprocess.run(
            [sys.executable, "-c", code, *args],
            cwd=cwd,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.fixture(scope="session")
def start_cli() -> Callable[..., subprocess.Popen[bytes]]:
    """Return a function that starts ``stratified-grpo`` and does not wait for it."""

    def start(*args: str, cwd: Path | None = None, code: str = MAIN) -> Any:
        return subprocess.Popen(
            [sys.executable, "-c", code, *args],
            cwd=cwd,
            env=_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    return start


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """Environment variables for a process of its own that knows the fake environment."""
    return _environment()


def _environment() -> dict[str, str]:
    known = os.environ.get("PYTHONPATH", "")
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), known])),
    }
