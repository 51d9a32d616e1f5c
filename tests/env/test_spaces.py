from __future__ import annotations

import copy
import pickle
import time

import pytest
from gymnasium.error import CustomSpaceError
from gymnasium.vector.utils import batch_space, create_shared_memory
from hypothesis import given
from hypothesis import strategies as st

from searchqa.spaces import FreeText, well_formed


@given(st.text())
def test_every_string_is_in_the_space(text: str) -> None:
    assert FreeText().contains(text)
    assert text in FreeText()


@pytest.mark.parametrize("value", [None, b"x", 1, ["x"]])
def test_nothing_else_is(value: object) -> None:
    assert not FreeText().contains(value)


def test_samples_are_in_the_space_and_seeded() -> None:
    one, two = FreeText(seed=3), FreeText(seed=3)
    drawn = [one.sample() for _ in range(1000)]
    assert drawn == [two.sample() for _ in range(1000)]
    assert all(text in one for text in drawn)
    assert {"<search>" in t for t in drawn} == {True, False}


def test_it_is_cheap_equal_and_picklable() -> None:
    began = time.perf_counter()
    space = FreeText()
    assert time.perf_counter() - began < 0.001
    assert "x" * 100_000 in space
    assert space == FreeText() == pickle.loads(pickle.dumps(space)) == copy.deepcopy(space)
    assert len(pickle.dumps(space)) < 1000
    assert hash(space) == hash(FreeText())
    assert space != 3
    assert repr(space) == "FreeText()"
    assert space.from_jsonable(space.to_jsonable(["a", "é"])) == ["a", "é"]
    assert not space.is_np_flattenable


def test_a_mask_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be masked"):
        FreeText().sample(mask=1)


def test_shared_memory_fails_loudly_and_batching_works() -> None:
    with pytest.raises(CustomSpaceError):
        create_shared_memory(FreeText(), n=2)
    assert ("a", "é") in batch_space(FreeText(), 2)


@given(st.text())
def test_well_formed_keeps_what_utf8_can_hold(text: str) -> None:
    assert well_formed(text) == text


def test_well_formed_replaces_lone_surrogates_one_for_one() -> None:
    assert well_formed("a\ud800é\udfffb") == "a\ufffdé\ufffdb"
