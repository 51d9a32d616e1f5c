"""A run: resumable, refusable, extendable, and the same from its own episodes."""

import dataclasses
import json
import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from stratified_grpo import trainer as trainer_module
from stratified_grpo.checkpoint import latest_checkpoint, read_state
from stratified_grpo.config import TrainConfig
from stratified_grpo.errors import ConfigError, TrainingError
from stratified_grpo.offline import update_from_records
from stratified_grpo.run_folder import config_of, run_identity
from stratified_grpo.trainer import Trainer, first_cursor


class Silent:
    """Is told and keeps it to itself."""

    def __init__(self):
        self.updates, self.evaluations = [], []

    def updated(self, step, metrics):
        self.updates.append(step)

    def evaluated(self, step, evaluation):
        self.evaluations.append((step, evaluation))


@pytest.fixture
def make_config(tiny_folder, tmp_path):
    def make(out="run", **changes):
        values = {
            "model": str(tiny_folder),
            "env_id": "fake_text_env:FakeText-v0",
            "questions": "8",
            "eval_questions": "4",
            "eval_limit": 4,
            "max_searches": 2,
            "alpha": "0.5",
            "updates": 4,
            "prompts_per_update": 2,
            "group_size": 4,
            "max_turn_tokens": 10,
            "max_episode_tokens": 120,
            "lr": 1e-3,
            "warmup": 2,
            "save_every": 2,
            "threads": 1,
            "out": str(tmp_path / out),
        }
        return TrainConfig(**{**values, **changes})

    return make


def train(config, watcher=None):
    trainer = Trainer(config, watcher or Silent())
    if not trainer.finished:
        trainer.run()
    return trainer


def weights(config):
    return load_file(latest_checkpoint(config.folder / "checkpoints") / "model.safetensors")


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def steps(config):
    return [line["step"] for line in lines(config.folder / "metrics.jsonl")]


def untimed(config):
    logged = lines(config.folder / "metrics.jsonl")
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in logged]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, tiny_folder):
    """Folder of four undisturbed updates."""
    return tmp_path_factory.mktemp("whole")


@pytest.fixture
def undisturbed(whole, make_config):
    config = dataclasses.replace(make_config(), out=str(whole / "run"))
    if not config.folder.exists():
        train(config)
    return config


def test_a_run_leaves_weights_metrics_episodes_and_evaluations(undisturbed, tiny_folder):
    folder = undisturbed.folder
    assert steps(undisturbed) == [1, 2, 3, 4]
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == [
        "latest",
        "step_2",
        "step_4",
    ]
    state = read_state(folder / "checkpoints" / "step_4")
    assert (state.step, state.cursor, state.consumed) == (4, 8, (6, 7))
    assert state.identity == run_identity(undisturbed, "train")
    assert config_of(state.identity).identity() == undisturbed.identity()
    assert [line["step"] for line in lines(folder / "eval.jsonl")] == [0, 4]
    moved = weights(undisturbed)
    start = load_file(tiny_folder / "model.safetensors")
    assert all(not torch.equal(moved[name], start[name]) for name in start)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["threads"] == 1


def test_every_update_writes_all_its_episodes(undisturbed):  # known fault 128
    logged = lines(undisturbed.folder / "metrics.jsonl")
    for step in (1, 2, 3, 4):
        episodes = lines(undisturbed.folder / "episodes" / f"step_{step}.jsonl")
        assert len(episodes) == 8
        asked = [record["question"]["id"] for record in episodes]
        assert asked == [f"q{(2 * step - 2 + i // 4) % 8}" for i in range(8)]
        mean = sum(record["reward"] for record in episodes) / 8
        assert logged[step - 1]["reward"] == pytest.approx(mean)


def test_the_same_config_gives_the_same_run(undisturbed, make_config):
    again = make_config("again")
    train(again)
    assert_equal(weights(again), weights(undisturbed))
    assert untimed(again) == untimed(undisturbed)
    other = make_config("other", seed=1)
    train(other)
    assert untimed(other) != untimed(undisturbed)


def asked(config):
    files = sorted((config.folder / "episodes").iterdir())
    return [record["question"]["id"] for file in files for record in lines(file)]


def test_another_seed_asks_in_another_order_and_evaluates_on_the_same(make_config, tmp_path):
    orders, evaluations = [], []
    for seed in (0, 1, 2):
        watcher = Silent()
        changes = {"env_kwargs": '{"shuffle": true}', "updates": 2, "seed": seed, "lr": 0.0}
        config = make_config(f"s{seed}", **changes)
        train(config, watcher)
        orders.append(asked(config)[::4])
        evaluations.append(watcher.evaluations)
    assert len(set(map(tuple, orders))) == 3
    assert all(len(set(order)) == 4 for order in orders)
    assert evaluations[0] == evaluations[1] == evaluations[2]  # greedy, of equal weights


@given(st.integers(0, 4000), st.integers(0, 10**7))
def test_runs_of_different_seeds_start_apart_and_at_an_epoch(seed, size):
    start, following = first_cursor(seed, size), first_cursor(seed + 1, size)
    assert following - start >= 2**20
    assert start % max(1, size) == 0
    assert first_cursor(0, size) == 0


def test_raising_updates_goes_on_where_the_run_ended(undisturbed, make_config):
    config = make_config(updates=2)
    train(config)
    watcher = Silent()
    longer = make_config(updates=4)
    train(longer, watcher)
    assert watcher.updates == [3, 4]
    assert_equal(weights(longer), weights(undisturbed))
    assert untimed(longer) == untimed(undisturbed)  # known faults 126 and 127


def test_a_finished_run_stays_as_it_is(undisturbed):
    before = (undisturbed.folder / "metrics.jsonl").read_text()
    watcher = Silent()
    assert Trainer(undisturbed, watcher).finished
    assert watcher.updates == []
    assert (undisturbed.folder / "metrics.jsonl").read_text() == before


def test_fresh_starts_anew(make_config, undisturbed):
    config = make_config(updates=2, seed=3)
    train(config)
    fresh = make_config(updates=4, fresh=True)  # another seed, too: the old run is gone
    watcher = Silent()
    train(fresh, watcher)
    assert watcher.updates == [1, 2, 3, 4]
    assert_equal(weights(fresh), weights(undisturbed))


def test_fresh_deletes_nothing_before_the_new_run_can_start(make_config):
    config = make_config(updates=2)
    train(config)
    with pytest.raises(ConfigError, match="cannot load a model"):
        Trainer(make_config(fresh=True, model="no/such/model/here"), Silent())
    assert steps(config) == [1, 2]


def test_another_configs_run_is_refused_with_what_differs(make_config):
    train(make_config(updates=1, save_every=1))
    with pytest.raises(
        ConfigError, match=r"different: lr \(0.001 there, 0.5 here\)\. Give another"
    ):
        Trainer(make_config(updates=1, save_every=1, lr=0.5), Silent())
    same = make_config(updates=1, save_every=1, keep_checkpoints=9, save_episodes=False)
    assert Trainer(same, Silent()).finished


def test_other_weights_under_the_same_path_are_another_run(make_config, tmp_path, tiny_folder):
    model = shutil.copytree(tiny_folder, tmp_path / "model")
    config = make_config(model=str(model), updates=1, save_every=1, eval_questions="")
    train(config)
    assert Trainer(config, Silent()).finished
    tensors = load_file(model / "model.safetensors")
    save_file({k: v * 1.5 for k, v in tensors.items()}, model / "model.safetensors")
    with pytest.raises(ConfigError, match=r"different: weights_sha256 \('[0-9a-f]{64}' there"):
        Trainer(config, Silent())
    shutil.rmtree(model)  # a run needs its starting weights only once
    assert Trainer(config, Silent()).finished


def test_train_never_goes_on_from_an_update_on_records(make_config):
    config = make_config("online", updates=1, save_every=1, eval_questions="")
    train(config)
    offline = make_config("offline", updates=1, save_every=1, eval_questions="")
    update_from_records([config.folder / "episodes" / "step_1.jsonl"], offline)
    with pytest.raises(ConfigError, match=r"different: command \('update' there, 'train' here\)"):
        Trainer(offline, Silent())


@pytest.mark.parametrize("fresh", [True, False])
def test_a_folder_of_something_else_is_left_alone(make_config, tmp_path, fresh):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("precious")
    with pytest.raises(ConfigError, match=r"not empty and not a run of this program"):
        Trainer(make_config(fresh=fresh), Silent())
    assert (tmp_path / "run" / "thesis.tex").read_text() == "precious"


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("manifest", ['{"name": "my web page"}', "[1]", "{torn", '{"schema": 1}'])
def test_a_manifest_of_something_else_makes_no_run(make_config, tmp_path, fresh, manifest):
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "manifest.json").write_text(manifest)
    (folder / "checkpoints" / "mine").write_text("precious")
    with pytest.raises(ConfigError, match=r"not a run of this program \(no manifest\.json"):
        Trainer(make_config(fresh=fresh), Silent())
    assert (folder / "manifest.json").read_text() == manifest
    assert (folder / "checkpoints" / "mine").read_text() == "precious"


def test_fresh_deletes_only_what_a_run_writes(make_config):
    config = make_config(updates=2)
    train(config)
    mine = ["notes.md", "episodes/best.txt", "checkpoints/kept/model", "plots/reward.png"]
    for name in mine:
        (config.folder / name).parent.mkdir(exist_ok=True)
        (config.folder / name).write_text("mine")
    Trainer(make_config(fresh=True, updates=2, seed=1), Silent())
    left = {str(p.relative_to(config.folder)) for p in config.folder.rglob("*") if p.is_file()}
    assert left - {".lock"} == {*mine, "manifest.json"}
    assert json.loads((config.folder / "manifest.json").read_text())["config"]["seed"] == 1


def test_two_trainers_never_share_a_folder(make_config):
    config = make_config(updates=2)
    first = Trainer(config, Silent())
    for fresh in (False, True):
        with pytest.raises(ConfigError, match="another process is at work in"):
            Trainer(make_config(updates=2, fresh=fresh), Silent())
    first.run()
    assert steps(config) == [1, 2]
    assert Trainer(config, Silent()).finished


def test_a_run_that_began_while_this_one_started_is_not_overwritten(make_config, monkeypatch):
    config = make_config(updates=2)
    load = trainer_module.load_policy

    def slowly(*args, **options):  # the other process is done before this one has its model
        monkeypatch.setattr(trainer_module, "load_policy", load)
        train(config)
        return load(*args, **options)

    monkeypatch.setattr(trainer_module, "load_policy", slowly)
    with pytest.raises(ConfigError, match=r"another process began a run in .*run meanwhile"):
        Trainer(make_config(updates=4), Silent())
    assert steps(config) == [1, 2]
    train(make_config(updates=4))
    assert steps(config) == [1, 2, 3, 4]


def test_what_cannot_start_leaves_no_folder(make_config, tmp_path):
    cases = {
        "no info key 'stop'": make_config(env_kwargs='{"drop": "stop"}'),
        "no info key 'depth'": make_config(stratum="depth"),
        "must be a string or an integer to stratify by, got float": make_config(stratum="em"),
        "must be a string or an integer to stratify by, got list": make_config(stratum="stop"),
        "cannot start: no search service": make_config(env_kwargs='{"bad_reset": true}'),
        "cannot make environment.*unexpected": make_config(env_kwargs='{"colour": 1}'),
        "cannot make environment.*Nothing": make_config(env_id="fake_text_env:Nothing-v0"),
        "needs module 'not_there'": make_config(env_id="not_there:Env-v0"),
        "positions for 1024 tokens": make_config(max_episode_tokens=1025),
        "cannot load a model": make_config(model="no/such/model/here"),
    }
    for says, config in cases.items():
        with pytest.raises(ConfigError, match=says):
            Trainer(config, Silent())
        assert not (tmp_path / "run").exists()


def test_too_many_invalid_rollouts_stop_the_run_and_leave_the_checkpoint(make_config):
    config = make_config(questions="8:void", max_invalid=0.0)
    with pytest.raises(TrainingError, match=r"of 8 rollouts.*\(error_search\).*max_invalid=0.0"):
        train(config)
    assert latest_checkpoint(config.folder / "checkpoints").name == "step_0"
    assert not (config.folder / "metrics.jsonl").exists()


def test_weights_that_blow_up_stop_the_run_and_leave_the_checkpoint(make_config):  # known fault 23
    config = make_config(lr=1e35, warmup=0, eval_questions="", save_every=4)
    with pytest.raises(TrainingError, match=r"invalid \(nonfinite_logprob\)"):
        train(config)
    assert all(bool(torch.isfinite(value).all()) for value in weights(config).values())
    assert steps(config)[-1] < 4


def test_a_kl_penalty_needs_no_further_setting(make_config):
    config = make_config(updates=2, kl_coef=0.1)
    train(config)
    first, second = lines(config.folder / "metrics.jsonl")
    assert first["kl_reference"] == pytest.approx(0.0, abs=1e-9)  # the policy is its reference
    assert second["kl_reference"] > 0.0


def test_alpha_follows_its_schedule(make_config):
    config = make_config(alpha="anneal:1.0..0.2@1..3", eval_questions="", save_every=4)
    train(config)
    logged = lines(config.folder / "metrics.jsonl")
    assert [line["alpha"] for line in logged] == pytest.approx([1.0, 1.0, 0.6, 0.2])


def test_evaluations_happen_when_asked(make_config):
    watcher = Silent()
    train(make_config(updates=3, eval_every=2), watcher)
    assert [step for step, _ in watcher.evaluations] == [0, 2, 3]
    watcher = Silent()
    train(make_config("quiet", updates=1, eval_questions="", save_episodes=False), watcher)
    assert watcher.evaluations == []


@pytest.mark.parametrize(
    "changes",
    [{}, {"max_episode_tokens": 50}, {"questions": "8:void", "max_invalid": 1.0},
     {"stratum": "turns"}, {"minibatches": 2, "loss_agg": "sequence"}, {"kl_coef": 0.1}],
)  # fmt: skip
def test_recorded_episodes_give_the_weights_of_the_run_that_wrote_them(make_config, changes):
    config = make_config("online", updates=2, max_turn_tokens=14, **changes)
    train(config)
    files = [config.folder / "episodes" / f"step_{step}.jsonl" for step in (1, 2)]
    offline = make_config("offline", updates=2, max_turn_tokens=14, **changes)
    seen = []
    folder = update_from_records(files, offline, lambda step, metrics: seen.append(metrics))
    assert_equal(load_file(folder / "model.safetensors"), weights(config))
    assert steps(offline) == [1, 2]
    for ours, theirs in zip(seen, lines(config.folder / "metrics.jsonl"), strict=True):
        for name in ("reward", "loss", "grad_norm", "policy_tokens", "bias/cross_stratum"):
            assert ours[name] == theirs[name], name
    statuses = {record["status"] for file in files for record in lines(file)}
    assert "max_episode_tokens" not in changes or "external" in statuses
    assert ("error_search" in statuses) is ("max_invalid" in changes)
    with pytest.raises(ConfigError, match="is not empty"):
        update_from_records(files, offline)
