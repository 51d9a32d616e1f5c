from __future__ import annotations

import pytest

from searchqa.errors import ConfigError
from searchqa.structure import COUNTERS, call_token, check_stratum_key, signature, stratum
from searchqa.types import SearchCall


@pytest.mark.parametrize(
    ("status", "hit", "token"),
    [
        ("ok", True, "S3h"),
        ("ok", False, "S3m"),
        ("empty", False, "S3e"),
        ("over_budget", False, "B3"),
        ("failed", False, "F3"),
    ],
)
def test_a_call_is_one_token(status: str, hit: bool, token: str) -> None:
    assert call_token(SearchCall(turn=3, query="q", status=status, hit=hit)) == token  # type: ignore[arg-type]


def test_a_signature_is_its_tokens() -> None:
    assert signature(["S1h", "S2m", "A"]) == "S1h S2m A"
    assert signature([]) == ""


def test_every_counter_is_a_stratum_key() -> None:
    counts = {name: i for i, name in enumerate(COUNTERS)}
    assert [stratum(check_stratum_key(name), counts, "A") for name in COUNTERS] == [
        str(i) for i in range(len(COUNTERS))
    ]


def test_an_unknown_key_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'searches' is unknown; use one of structure, num_turns"):
        check_stratum_key("searches")
