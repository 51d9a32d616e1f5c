"""Keys become codes without loss, whatever their type and range."""

import enum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratified_grpo.strata import compact, dense_codes, stratum_key

KEYS = st.one_of(
    st.lists(st.integers(-5, 5)),
    st.lists(st.integers(-(2**70), 2**70)),
    st.lists(st.text(max_size=2)),
    st.lists(st.one_of(st.integers(0, 2), st.text(max_size=1), st.none(), st.booleans())),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2))),
)


def assert_codes(keys, codes, num):
    """Equal keys have equal codes, different ones different codes, and none is left out."""
    assert codes.dtype == np.int64
    assert codes.shape == (len(keys),)
    assert sorted(set(codes.tolist())) == list(range(num))
    assert len(set(zip(keys, codes.tolist(), strict=True))) == num == len(set(keys))


@given(KEYS)
def test_codes_number_the_distinct_keys(keys):
    assert_codes(keys, *dense_codes(keys))


@given(
    st.sampled_from([np.int8, np.uint8, np.int32, np.int64, np.uint64]).flatmap(
        lambda kind: st.lists(
            st.one_of(
                st.integers(int(np.iinfo(kind).min), int(np.iinfo(kind).max)),
                st.sampled_from([int(np.iinfo(kind).min), int(np.iinfo(kind).max)]),
            ),
            max_size=20,
        ).map(lambda keys: np.array(keys, dtype=kind))
    )
)
def test_integer_arrays_of_any_width_are_coded_in_ascending_order(keys):
    codes, num = dense_codes(keys)
    assert_codes(keys.tolist(), codes, num)
    order = np.argsort(keys, kind="stable")
    assert (np.diff(codes[order]) >= 0).all()


def test_a_narrow_range_far_from_0_needs_no_sort():
    codes, num = compact(np.array([2**63 + 5, 2**63, 2**63 + 5], dtype=np.uint64))
    assert (codes.tolist(), num) == ([1, 0, 1], 2)
    codes, num = compact(np.array([-(2**62), 7 - 2**62]))
    assert (codes.tolist(), num) == ([0, 1], 2)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (np.array([True, False, True]), [1, 0, 1]),
        ([True, 0, 1], [1, 0, 1]),
        (np.array(["b", "a", "b"]), [0, 1, 0]),
        (np.array([0.5, 0.25, 0.5]), [0, 1, 0]),
        ([np.int64(3), 3, np.uint8(4)], [0, 0, 1]),
        ([enum.IntEnum("Depth", "A B").B, 2, 1], [1, 1, 0]),
        ([1, "1"], [0, 1]),
        ((), []),
        (np.array([]), []),
    ],
)
def test_every_kind_of_key_is_taken(keys, expected):
    assert dense_codes(keys)[0].tolist() == expected


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([[1], [2]], "groups must hold one hashable key a row"),
        (np.zeros((2, 2), dtype=int), r"groups must hold one key a row.*\(2, 2\)"),
        (np.zeros((2, 2)), "groups must hold one hashable key a row"),
        ([0.0, float("nan")], "groups must not hold NaN"),
        (3, "groups must hold one hashable key a row"),
    ],
)
def test_bad_keys_are_refused_in_a_sentence(keys, message):
    with pytest.raises(ValueError, match=message):
        dense_codes(keys, "groups")


def test_the_stratum_is_read_from_info():
    info = {"stratum": "2", "num_searches": np.int64(3), "em": 1.0}
    assert stratum_key(info) == "2"
    assert stratum_key(info, "num_searches") == 3
    with pytest.raises(ValueError, match=r"no key 'depth'.* it holds em, num_searches, stratum"):
        stratum_key(info, "depth")
    with pytest.raises(ValueError, match=r"info\['em'\] must be a string or an integer.*float 1.0"):
        stratum_key(info, "em")
