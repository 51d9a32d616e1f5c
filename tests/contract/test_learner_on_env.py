"""The learner on the real environment: rows, strata and records mean the same to both."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import gymnasium
import numpy as np
import pytest
import torch

from searchqa.demonstrator import Clumsiness, Demonstrator, oracle_action
from searchqa.questions import open_questions
from searchqa.record import from_json
from stratified_grpo.cli import main
from stratified_grpo.config import SftConfig, TrainConfig
from stratified_grpo.demo.tiny import write_tiny_model
from stratified_grpo.environments import EnvironmentPool
from stratified_grpo.evaluate import evaluate
from stratified_grpo.policy import load_policy
from stratified_grpo.records import read_texts, to_rollout
from stratified_grpo.rollout import RolloutSettings, collect
from stratified_grpo.samplers.hf import HFSampler
from stratified_grpo.samplers.scripted import ScriptedSampler
from stratified_grpo.sft import imitate
from stratified_grpo.trainer import Trainer

torch.set_num_threads(1)

ENV_ID = "searchqa:SearchQA-v0"
QUESTIONS = "demo:train?hops=2&relations=demo&passages=1000"
KWARGS = {
    "questions": QUESTIONS,
    "search": "embedded",
    "prompt": "{question}\n",
    "max_searches": 2,
    "top_k": 1,
}


class Silent:
    def updated(self, step, metrics):
        pass

    def evaluated(self, step, evaluation):
        pass


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory):
    """Records of 150 clumsy episodes."""
    env = gymnasium.make(ENV_ID, disable_env_checker=True, **KWARGS)
    questions, rng, records = open_questions(QUESTIONS), np.random.default_rng(0), []
    for seed in range(150):
        observation, _ = env.reset(seed=seed)
        player = Demonstrator(questions.by_seed(seed), rng, Clumsiness())
        done = False
        while not done:
            observation, _, terminated, truncated, info = env.step(player.act(observation))
            done = terminated or truncated
        records.append(info["record"])
    env.close()
    path = tmp_path_factory.mktemp("demonstrations") / "episodes.jsonl"
    path.write_text("".join(f"{record}\n" for record in records), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def model(demonstrations, tmp_path_factory):
    """A tiny policy that has just learned to use the tags."""
    folder = tmp_path_factory.mktemp("tiny") / "model"
    texts = read_texts(demonstrations)
    write_tiny_model(folder, texts, vocabulary=400, width=64, layers=1, heads=2)
    config = SftConfig(
        episodes=demonstrations,
        model=str(folder),
        out=folder,
        steps=60,
        batch=16,
        lr=5e-3,
        warmup=5,
    )
    imitate(load_policy(folder), config)
    return folder


@pytest.fixture
def pool():
    made = EnvironmentPool(ENV_ID, KWARGS, stratum="stratum")
    yield made
    made.close()


def settings(**changes):
    values = {
        "group_size": 4,
        "temperature": 1.0,
        "max_turn_tokens": 24,
        "max_episode_tokens": 300,
        "seed": 0,
    }
    return RolloutSettings(**{**values, **changes})


def values_of(model, out):
    return {
        "model": str(model),
        "env_id": ENV_ID,
        "questions": QUESTIONS,
        "prompt": KWARGS["prompt"],
        "max_searches": 2,
        "top_k": 1,
        "alpha": "0.8",
        "updates": 2,
        "prompts_per_update": 4,
        "group_size": 6,
        "max_turn_tokens": 24,
        "max_episode_tokens": 300,
        "lr": 1e-3,
        "warmup": 0,
        "save_every": 1,
        "threads": 1,
        "out": str(out),
    }


@pytest.fixture(scope="module")
def run(model, tmp_path_factory):
    """Folder of two updates."""
    config = TrainConfig(**values_of(model, tmp_path_factory.mktemp("run") / "here"))
    Trainer(config, Silent()).run()
    return config.folder


def digest(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def records_of(run):
    for step in (1, 2):
        yield from (run / "episodes" / f"step_{step}.jsonl").read_text("utf-8").splitlines()


def test_the_pool_finds_all_it_needs(pool):
    assert pool.check() == len(open_questions(QUESTIONS))


def test_rows_are_whole(pool, model):
    policy = load_policy(model)
    groups = collect(
        pool, HFSampler(policy), policy.codec, settings(), step=0, cursors=[0, 1, 2, 3]
    )
    searched = 0
    for rollout in (r for g in groups for r in g.rollouts):
        episode = from_json(rollout.record)
        row, codec = rollout.tokens, policy.codec
        expected: list[int] = []
        mask: list[int] = []
        for segment in episode.segments:
            ours = segment.source == "model"
            ids = list(segment.token_ids) if ours else codec.content(segment.text)
            expected += ids
            mask += [int(ours)] * len(ids)
            if ours:
                assert codec.decode(ids).startswith(segment.text)
                assert len(segment.logprobs) == len(ids)
        assert row.ids == expected
        assert row.mask == mask
        assert sum(row.mask) == row.num_trainable > 0
        assert rollout.stratum == str(episode.counts["num_searches"]) == episode.stratum
        assert rollout.reward == episode.reward
        back = to_rollout(json.loads(rollout.record), codec)
        assert back.tokens == row
        searched += episode.counts["num_searches"]
    assert searched > 0  # the policy does search, so the above was tested


def test_members_of_a_group_share_the_question(pool, model):
    policy = load_policy(model)
    groups = collect(pool, HFSampler(policy), policy.codec, settings(), step=0, cursors=[7, 5])
    asked = [{from_json(r.record).question.id for r in group.rollouts} for group in groups]
    questions = open_questions(QUESTIONS)
    assert asked == [{questions.by_seed(7).id}, {questions.by_seed(5).id}]


def test_two_updates_move_the_weights_and_log_the_strata(run, model):
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in logged] == [1, 2]
    for line in logged:
        shares = [v for k, v in line.items() if k.startswith("stratum/") and k.endswith("/share")]
        assert sum(shares) == pytest.approx(1.0)
        assert line["rollouts"] == 24
        assert line["episode/valid"] == 1.0
    assert digest(run / "checkpoints" / "step_2") != digest(model)
    episodes = [from_json(record) for record in records_of(run)]
    assert len(episodes) == 48
    for episode in episodes:
        assert episode.stratum == str(episode.counts["num_searches"])
        assert {s.tokenizer_hash for s in episode.segments if s.source == "model"} == {
            load_policy(model).codec.fingerprint
        } or not episode.turns


def test_another_process_ends_with_the_same_weights(run, model, tmp_path):
    code = (
        "import json, sys\n"
        "from stratified_grpo.config import TrainConfig\n"
        "from stratified_grpo.trainer import Trainer\n"
        "class Silent:\n"
        "    def updated(self, step, metrics): pass\n"
        "    def evaluated(self, step, evaluation): pass\n"
        "Trainer(TrainConfig(**json.loads(sys.argv[1])), Silent()).run()\n"
    )
    values = json.dumps(values_of(model, tmp_path / "there"))
    done = subprocess.run(
        [sys.executable, "-c", code, values], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    there = tmp_path / "there"
    assert digest(there / "checkpoints" / "step_2") == digest(run / "checkpoints" / "step_2")
    assert list(records_of(there)) == list(records_of(run))


def test_recorded_episodes_train_as_they_did(run, model, tmp_path, capsys):
    out = tmp_path / "offline"
    given = values_of(model, out)
    options = [f"--{k.replace('_', '-')}={v}" for k, v in given.items()]
    files = [f"--episodes={run / 'episodes' / f'step_{step}.jsonl'}" for step in (1, 2)]
    assert main(["update", *files, *options]) == 0
    assert digest(out / "checkpoints" / "step_2") == digest(run / "checkpoints" / "step_2")
    capsys.readouterr()


def test_a_full_context_ends_an_episode_that_can_still_be_trained_on(pool, model):
    policy = load_policy(model)
    prompt = len(policy.codec.prompt(open_questions(QUESTIONS).by_seed(0).text + "\n"))
    sampler = ScriptedSampler(policy.codec, lambda *_: "<search> the film </search>")
    tight = settings(max_episode_tokens=prompt + 30)
    (group,) = collect(pool, sampler, policy.codec, tight, step=0, cursors=[0])
    for rollout in group.rollouts:
        assert (rollout.status, rollout.reward, rollout.usable) == ("length", 0.0, True)
        assert len(rollout.tokens) <= prompt + 30
        assert from_json(rollout.record).status == "external"
        assert to_rollout(json.loads(rollout.record), policy.codec).tokens == rollout.tokens


def test_the_oracle_scores_one(pool, model):
    codec = load_policy(model).codec
    questions = open_questions(QUESTIONS)
    by_prompt = {f"{questions.by_seed(seed).text}\n": questions.by_seed(seed) for seed in range(20)}

    def policy(request, text):
        prompt = next(prompt for prompt in by_prompt if text.startswith(prompt))
        return oracle_action(by_prompt[prompt], request.key[-1])

    given = settings(max_turn_tokens=60, max_episode_tokens=2000)
    result = evaluate(pool, ScriptedSampler(codec, policy), codec, given, limit=20)
    assert (result.overall.em, result.overall.searches) == (1.0, 2.0)
    assert [score.name for score in result.scores] == ["all", "hops=2"]


class FlakyService(ThreadingHTTPServer):
    """Finds nothing, ever; searches of the agent whose number is in ``fails`` are answered 500."""

    daemon_threads = True

    def __init__(self, fails):
        super().__init__(("127.0.0.1", 0), FlakyHandler)
        self.fails, self.searches, self.lock = fails, 0, threading.Lock()

    def fails_now(self, query):
        if query == "Who was the first president?":  # the environment's own first question
            return False
        with self.lock:
            self.searches += 1
            return self.searches in self.fails


class FlakyHandler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self._reply(200, {})

    def do_POST(self):
        (query,) = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        failed = self.server.fails_now(query)
        self._reply(*((500, {"detail": "gone"}) if failed else (200, {"result": [[]]})))

    def _reply(self, status, body):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def flaky():
    """Return a function: numbers of the searches that fail in, the service out."""
    services = []

    def serve(fails):
        services.append(FlakyService(fails))
        threading.Thread(target=services[-1].serve_forever, args=(0.01,), daemon=True).start()
        return services[-1]

    yield serve
    for service in services:
        service.shutdown()
        service.server_close()


def train_against(service, model, out, **changes):
    url = f"http://127.0.0.1:{service.server_address[1]}"
    values = {**values_of(model, out), "search": url, "save_every": 1, **changes}
    return main(["train", *(f"--{k.replace('_', '-')}={v}" for k, v in values.items())])


def test_a_search_that_fails_once_costs_one_rollout(flaky, model, tmp_path, capsys):
    out, service = tmp_path / "run", flaky({5})
    assert train_against(service, model, out) == 0
    assert service.searches > 5
    logged = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["invalid"] for line in logged] == [1.0, 0.0]
    statuses = [from_json(record).status for record in records_of(out)]
    assert statuses.count("error_search") == 1
    capsys.readouterr()


def test_a_search_that_stays_dead_stops_the_run(flaky, model, tmp_path, capsys):
    out, service = tmp_path / "run", flaky(range(5, 10**6))
    assert train_against(service, model, out, max_invalid=0.2) == 1
    err = capsys.readouterr().err
    assert "error_search" in err
    assert "max_invalid=0.2" in err
    assert err.count("\n") == 1
    assert (out / "checkpoints" / "latest").read_text() == "step_0"
    assert not (out / "metrics.jsonl").exists()


def test_who_asks_for_raising_gets_it(flaky, model, tmp_path, capsys):
    kwargs = '{"on_search_failure": "raise"}'
    assert train_against(flaky({5}), model, tmp_path / "run", env_kwargs=kwargs) == 1
    err = capsys.readouterr().err
    assert "failed with 500" in err
    assert err.count("\n") == 1


def test_what_the_environment_cannot_open_is_one_sentence(tmp_path, capsys, model):
    out = tmp_path / "run"
    base = ["--model", str(model), "--out", str(out), "--max-episode-tokens", "300"]
    assert main(["train", *base, "--questions", str(tmp_path / "no.jsonl")]) == 2
    err = capsys.readouterr().err
    assert "no.jsonl" in err
    assert err.count("\n") == 1
    assert not out.exists()
    assert main(["train", *base, "--search", "http://127.0.0.1:9"]) == 2
    err = capsys.readouterr().err
    assert "http://127.0.0.1:9" in err
    assert err.count("\n") == 1
    assert not out.exists()
