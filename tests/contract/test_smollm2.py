"""Real parts end to end: SmolLM2-135M, 2WikiMultiHopQA, a real uvicorn; search, imitate, update."""

import gzip
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

import searchqa  # registers the environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
ROOT = Path(__file__).parents[2]
THREADS = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "HF_HUB_OFFLINE": "1"}


def run(*command: str) -> str:
    """Run a command of this environment; its output when it succeeds."""
    bin_folder = Path(sys.executable).parent
    done = subprocess.run(
        [str(bin_folder / command[0]), *command[1:]],
        capture_output=True,
        text=True,
        env={**os.environ, **THREADS},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wiki() -> Path:
    data = os.environ.get("SEARCHQA_TEST_DATA")
    if not data:
        pytest.skip("SEARCHQA_TEST_DATA is not set: no real questions")
    return Path(data) / "2wiki_1000"


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The converted model; SEARCHQA_SMOLLM2 names a folder made earlier."""
    if ready := os.environ.get("SEARCHQA_SMOLLM2"):
        return Path(ready)
    pytest.importorskip("gguf", reason="gguf is not installed: SmolLM2 cannot be converted")
    out = tmp_path_factory.mktemp("smollm2") / "model"
    run("python", str(ROOT / "scripts" / "fetch_smollm2.py"), str(out))
    return out


@pytest.fixture(scope="module")
def service(wiki: Path, tmp_path_factory: pytest.TempPathFactory):
    """URL of a served index over the real corpus."""
    index = tmp_path_factory.mktemp("index") / "index"
    run("searchqa-search", "index", "build", str(wiki / "corpus.jsonl.gz"), str(index))
    command = [Path(sys.executable).parent / "searchqa-search", "serve", "--index", str(index)]
    with subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        url = ""
        while not url:
            line = server.stdout.readline()
            assert line, "the service ended before it listened"
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                url = found[0]
        yield url
        server.terminate()


@pytest.fixture(scope="module")
def questions(wiki: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real yes-or-no questions: a small model gets some right and some wrong."""
    with gzip.open(wiki / "questions.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    rows = [row for row in rows if row["golden_answers"][0].lower() in ("yes", "no")]
    path = tmp_path_factory.mktemp("questions") / "yes_no.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def imitated(questions: Path, wiki: Path, service: str, out: Path) -> Path:
    """Episodes of a scripted player over HTTP: a look at a gold title or none, then a coin."""
    with gzip.open(wiki / "corpus.jsonl.gz", "rt") as file:
        titles = {row["id"]: row["title"] for row in map(json.loads, file)}
    rows = {row["id"]: row for row in map(json.loads, questions.read_text().splitlines())}
    dice = random.Random(0)
    env = gymnasium.make(
        searchqa.ENV_ID,
        questions=str(questions),
        search=service,
        prompt="{question}\n",
        top_k=1,
        max_searches=2,
    )
    records = []
    for seed in range(96):
        _, info = env.reset(seed=seed)
        gold = rows[info["question_id"]]["gold_passage_ids"]
        if seed % 2 and gold:
            env.step(f"<search> {titles[dice.choice(gold)]} </search>")
        records.append(env.step(f"<answer> {dice.choice(['yes', 'no'])} </answer>")[4]["record"])
    out.write_text("".join(f"{record}\n" for record in records))
    return out


def test_two_real_updates_over_http(wiki, smollm2, service, questions, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    episodes = imitated(questions, wiki, service, tmp_path / "episodes.jsonl")
    warm, out = tmp_path / "warm", tmp_path / "run"
    run(
        *("stratified-grpo", "sft", "--episodes", str(episodes), "--model", str(smollm2)),
        *("--out", str(warm), "--steps", "12", "--batch", "4", "--lr", "2e-4", "--warmup", "2"),
        *("--weight-decay", "0", "--micro-batch-tokens", "512"),
    )
    run(
        *("stratified-grpo", "train", "--model", str(warm), "--questions", str(questions)),
        *("--search", service, "--out", str(out), "--updates", "2", "--prompts-per-update", "4"),
        *("--group-size", "4", "--max-turn-tokens", "24", "--max-searches", "2", "--top-k", "1"),
        *("--prompt", "{question}\n", "--lr", "1e-5", "--warmup", "0"),
        *("--micro-batch-tokens", "1024"),
    )
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert sum(line["trained_rows"] for line in lines) > 0
    assert all(line["invalid"] == 0 and line["nonfinite_rows"] == 0 for line in lines)
    trained = AutoModelForCausalLM.from_pretrained(out / "checkpoints" / "step_2")
    before = AutoModelForCausalLM.from_pretrained(warm).state_dict()
    after = trained.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert all(torch.isfinite(value).all() for value in after.values())
    check_episodes(out)


def check_episodes(out: Path) -> None:
    """Every episode is a readable record of a real question with sampled ids in its own turns."""
    from searchqa.record import from_json

    records = [from_json(line) for step in (1, 2) for line in _episode_lines(out, step)]
    assert len(records) == 2 * 4 * 4
    for record in records:
        model = [segment for segment in record.segments if segment.source == "model"]
        assert record.question.source
        assert record.segments[0].source == "prompt"
        assert all(len(s.token_ids) == len(s.logprobs) > 0 for s in model)
        executed = sum(call.status in ("ok", "empty") for call in record.calls)
        assert record.counts["num_searches"] == executed
    assert any(record.calls for record in records), "no episode searched"


def _episode_lines(out: Path, step: int) -> list[str]:
    return (out / "episodes" / f"step_{step}.jsonl").read_text().splitlines()
