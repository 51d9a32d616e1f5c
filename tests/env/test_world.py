"""The generated world: same bytes always, one passage an entity, priors as stated."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchqa.errors import ConfigError
from searchqa.question_file import read_questions
from searchqa.types import Passage
from searchqa.world import DEMO_RELATIONS, SPLITS, World, WorldConfig, export
from searchqa.world_facts import KINDS, WORKS, Layout
from searchqa.world_passages import PHRASINGS, read_passage
from searchqa.world_wordings import RELATIONS

SMALL = WorldConfig(passages=1000, seed=3)
# Of export(World(SMALL), limit=300). A change here changes everyone's demo world: say so in the
# changelog, and make the shipped demo policy and its numbers anew.
DIGEST = "5f9cbc94a2cdd9ae34a680ae02ea4877927987557f9959aefc4f08a48f667105"


def digest(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["corpus.jsonl", "test.jsonl", "train.jsonl", "validation.jsonl"]
    content = b"".join((folder / name).read_bytes() for name in names)
    return hashlib.sha256(content).hexdigest()


def test_bytes_are_those_of_every_earlier_version(tmp_path: Path):
    export(World(SMALL), tmp_path, limit=300)
    assert digest(tmp_path) == DIGEST


@pytest.mark.parametrize("hash_seed", ["0", "4242"])
def test_bytes_do_not_depend_on_the_process(tmp_path: Path, hash_seed: str):
    code = (
        "import sys; from searchqa.world import World, WorldConfig, export;"
        "export(World(WorldConfig(passages=1000, seed=3)), sys.argv[1], limit=300)"
    )
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=env)
    assert digest(tmp_path) == DIGEST


def test_seeds_make_different_worlds():
    facts = [[p.text for p in World(WorldConfig(passages=500, seed=s)).passages] for s in (0, 1)]
    same = sum(a == b for a, b in zip(*facts, strict=True))
    assert same < 10


@given(st.integers(0, 2**40), st.data())
@settings(max_examples=20, deadline=None)
def test_a_passage_is_a_pure_function_of_config_and_index(seed: int, data: st.DataObject):
    size = data.draw(st.sampled_from([500, 4000, 10_000_000]))
    index = data.draw(st.integers(0, size - 1))
    config = WorldConfig(passages=size, seed=seed)
    one, two = World(config), World(config)
    for other in data.draw(st.lists(st.integers(0, size - 1), max_size=5)):
        one.passage(other)
    assert one.passage(index) == two.passage(index)
    assert one.passage(index).id == str(index)


def test_the_largest_world_has_its_last_passage():
    world = World(WorldConfig(passages=2**31))
    assert read_passage(world.passage(2**31 - 1).text)[0] == "person"


def test_passages_are_one_sequence():
    world = World(SMALL)
    passages = world.passages
    listed = list(passages)
    assert len(passages) == len(listed) == 1000
    assert listed == list(world.iter_passages()) == [world.passage(i) for i in range(1000)]
    assert passages[-1] == listed[-1]
    assert list(passages[10:20:3]) == listed[10:20:3]
    for outside in (1000, -1001):
        with pytest.raises(IndexError):
            passages[outside]
    with pytest.raises(IndexError, match="passage -1 of a world of 1000"):
        world.passage(-1)


@pytest.mark.parametrize("passages", [500, 4000, 120_000])
def test_titles_are_unique(passages: int):
    layout = Layout(WorldConfig(passages=passages, seed=1))
    assert len({layout.title(i) for i in range(passages)}) == passages


@pytest.mark.parametrize("seed", [0, 1])
def test_reading_a_passage_gives_back_its_facts(seed: int):
    world = World(WorldConfig(passages=1500, seed=seed))
    layout = Layout(world.config)
    for index, passage in enumerate(world.passages):
        facts = {
            name: value if isinstance(value, str) else layout.title(value)
            for name, value in layout.facts(index).items()
        }
        kind, _ = layout.locate(index)
        assert read_passage(passage.text) == (kind, {"title": passage.title, **facts})


@pytest.mark.parametrize("text", ["", "Velmark", "Paris is a city in France.", "x" * 10_000])
def test_reading_a_foreign_text_finds_nothing(text: str):
    assert read_passage(text) == ("", {})


def test_every_phrasing_is_used_and_passages_are_short():
    world = World()
    layout = Layout(world.config)
    lengths = sorted(len(passage.text.split()) for passage in world.passages)
    assert 10 <= lengths[0] <= lengths[-1] <= 33
    assert 20 <= lengths[len(lengths) // 2] <= 30
    used: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for index, passage in enumerate(world.passages):
        kind, slots = read_passage(passage.text)
        assert kind == layout.locate(index)[0]
        used[kind] |= {p for p in PHRASINGS[kind] if _fits(p, slots, passage.text)}
    assert {kind: len(used[kind]) for kind in KINDS} == {k: len(PHRASINGS[k]) for k in KINDS}
    assert min(map(len, used.values())) >= 3


def _fits(phrasing: str, slots: dict[str, str], text: str) -> bool:
    return phrasing.format_map(defaultdict(str, slots)) == text


def test_works_name_two_people_and_a_country_they_need_not_come_from():
    layout = Layout(WorldConfig())
    same = total = 0
    leads: Counter[int] = Counter()
    for kind in WORKS:
        for index in range(layout.starts[kind], layout.starts[kind] + layout.sizes[kind]):
            facts = layout.facts(index)
            people = [v for name, v in facts.items() if RELATIONS[name].value == "person"]
            lead = next(v for name, v in facts.items() if name in DEMO_RELATIONS)
            assert isinstance(lead, int)
            assert len(people) == len(set(people)) >= 2
            leads[lead] += 1
            same += facts[f"{kind}_country"] == layout.facts(lead)["birth_country"]
            total += 1
    assert max(leads.values()) == 1
    assert same / total < 0.08


@pytest.mark.parametrize("mode_share", [0.25, 0.36, 0.9])
@pytest.mark.parametrize("relation", ["birth_country", "mother_tongue", "profession", "instrument"])
def test_values_follow_the_stated_prior(relation: str, mode_share: float):
    world = World(WorldConfig(passages=12_000, seed=5, mode_share=mode_share))
    layout = Layout(world.config)
    prior = world.prior(relation)
    shares = list(prior.values())
    assert math.isclose(sum(shares), 1.0)
    assert math.isclose(shares[0], mode_share)
    assert shares == sorted(shares, reverse=True)
    people = range(layout.starts["person"], world.config.passages)
    values = Counter(layout.facts(i)[relation] for i in people)
    named = {v if isinstance(v, str) else layout.title(v): n for v, n in values.items()}
    assert named.keys() <= prior.keys()
    expected = {value: share * len(people) for value, share in prior.items()}
    chi2 = sum((named.get(v, 0) - e) ** 2 / e for v, e in expected.items())
    degrees = len(prior) - 1
    assert chi2 < degrees + 5 * math.sqrt(2 * degrees)


def test_priors_of_open_relations_are_empty():
    world = World(SMALL)
    assert world.prior("director") == {}
    assert set(world.prior("birth_year").values()) == {0.01}
    with pytest.raises(ConfigError, match=r"relation: 'colour' is unknown, .* among actor, "):
        world.prior("colour")


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"passages": 499}, "passages is 499, but a world has 500 to 2147483648"),
        ({"passages": 2**31 + 1}, "passages is 2147483649, but"),
        ({"seed": -1}, "seed is -1, but it must be at least 0"),
        ({"mode_share": 0.1}, r"mode_share is 0.1, but it must be 0.25 to 0.9"),
        ({"mode_share": math.nan}, "mode_share is nan"),
    ],
)
def test_a_config_that_cannot_work_is_refused(config: dict[str, float], sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        WorldConfig(**config)  # type: ignore[arg-type]


def test_a_world_pickles_and_shows_its_config():
    world = World(SMALL)
    copy = pickle.loads(pickle.dumps(world))
    assert copy.passage(7) == world.passage(7)
    assert copy.questions("test", limit=5) == world.questions("test", limit=5)
    assert "passages=1000" in repr(world)


def test_export_writes_what_the_world_holds(tmp_path: Path):
    world = World(SMALL)
    out = tmp_path / "new" / "folder"
    counts = export(world, out, limit=20)
    assert counts == {
        "corpus.jsonl": 1000,
        "train.jsonl": 20,
        "validation.jsonl": 20,
        "test.jsonl": 20,
    }
    corpus = (out / "corpus.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in corpus.splitlines()]
    assert [Passage(id=r["id"], title=r["title"], text=r["text"]) for r in rows] == list(
        world.passages
    )
    assert all(r["contents"] == f'"{r["title"]}"\n{r["text"]}' for r in rows)
    for split in SPLITS:
        read = read_questions(out / f"{split}.jsonl")
        assert tuple(read) == world.questions(split, limit=20)


class BrokenWorld(World):
    @property
    def passages(self) -> Sequence[Passage]:
        class Broken(list[Passage]):
            def __iter__(inner) -> Iterator[Passage]:
                yield self.passage(0)
                raise OSError("disk full")

        return Broken()


def test_a_failed_export_leaves_no_file(tmp_path: Path):
    with pytest.raises(OSError, match="disk full"):
        export(BrokenWorld(SMALL), tmp_path)
    assert list(tmp_path.iterdir()) == []
