"""Names and numbers of the generated world: bijections, and words that collide with nothing."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchqa import world_names, world_words
from searchqa.world_names import CONSONANTS, WORD_FORMS, WordClass
from searchqa.world_passages import PHRASINGS
from searchqa.world_random import Permutation, Skewed, derive_key, falling_shares, mix
from searchqa.world_wordings import COMPARISONS, RELATIONS


def english() -> set[str]:
    """Every word of passages, questions and lists that is not an invented name."""
    texts = [text for block in PHRASINGS.values() for text in block]
    for relation in RELATIONS.values():
        texts += [*relation.ask, *relation.phrase, relation.clause, relation.tail]
    texts += [text for comparison in COMPARISONS for text in comparison.ask]
    for name in dir(world_words):
        if name.isupper() and name != "YEARS":
            texts += getattr(world_words, name)
    texts += [form for forms in world_names._FORMS.values() for form in forms]
    plain = re.sub(r"\{\w+\}", " ", " ".join(texts)).lower()
    return set(re.findall(r"[a-z]+", plain))


@pytest.mark.parametrize("name", WORD_FORMS)
def test_no_invented_word_of_any_length_is_an_english_word(name: str):
    endings, fewest = WORD_FORMS[name]
    word = re.compile(f"([{CONSONANTS}][aeiou]){{{fewest},}}({'|'.join(endings)})")
    assert [w for w in english() if word.fullmatch(w)] == []


def test_classes_differ_in_their_last_two_letters():
    tails = {name: {ending[-2:] for ending in endings} for name, (endings, _) in WORD_FORMS.items()}
    tails["company"] = {f"{vowel}x" for vowel in "aeiou"}
    names = sorted(tails)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            assert not tails[one] & tails[other], (one, other)


def test_the_vocabulary_is_small_and_title_words_are_enough():
    assert len(english()) < 600
    assert len(set(world_words.ADJECTIVES)) == len(world_words.ADJECTIVES) >= 100
    assert len(set(world_words.NOUNS)) == len(world_words.NOUNS) >= 100
    assert not {*world_words.ADJECTIVES} & {*world_words.NOUNS}


@given(key=st.integers(0, 2**64 - 1), syllables=st.integers(1, 2))
def test_words_of_a_class_are_distinct(key: int, syllables: int):
    word = WordClass(key, 900, WORD_FORMS["river"][0], syllables)
    assert len({word(number) for number in range(900)}) == 900


@given(key=st.integers(0, 2**64 - 1), size=st.integers(1, 3000))
def test_a_permutation_is_a_bijection(key: int, size: int):
    permutation = Permutation(key, size)
    assert sorted(map(permutation, range(size))) == list(range(size))


def test_permutations_of_different_keys_are_unlike():
    one, other = (list(map(Permutation(key, 1000), range(1000))) for key in (1, 2))
    assert sum(a == b for a, b in zip(one, other, strict=True)) < 10
    assert sum(abs(a - b) == 1 for a, b in pairwise(one)) < 10


def test_mix_is_splitmix64():
    # First outputs of the published generator seeded with 0 (its counter starts at one step).
    assert [mix(0, n) for n in (1, 2, 3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


def test_keys_are_stable_and_differ():
    assert derive_key(0, "a") == derive_key(0, "a")
    assert len({derive_key(seed, name) for seed in range(50) for name in "abc"}) == 150


@given(size=st.integers(8, 40), mode_share=st.floats(0.25, 0.95))
def test_falling_shares_fall_and_sum_to_one(size: int, mode_share: float):
    shares = falling_shares(size, mode_share)
    assert len(shares) == size
    assert shares[0] == mode_share
    assert math.isclose(sum(shares), 1.0)
    assert list(shares) == sorted(shares, reverse=True)


@given(st.integers(0, 2**64 - 1))
def test_a_skewed_draw_is_the_rank_whose_interval_holds_the_word(word: int):
    shares = falling_shares(12, 0.36)
    position, rank = word / 2**64, 0
    while rank < 11 and position >= sum(shares[: rank + 1]):
        rank += 1
    drawn = Skewed(shares)(word)
    edges = [abs(position - sum(shares[: r + 1])) for r in range(11)]
    assert drawn == rank or min(edges) < 1e-12
