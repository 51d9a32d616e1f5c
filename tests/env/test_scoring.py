from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchqa.scoring import REWARDS, contains_answer, em, normalise

texts = st.text(alphabet=st.sampled_from("aAntheTHé 东.,'-!1\n\t")) | st.text()


def slow_normalise(text: str) -> str:
    """The published normalisation, one character and one word at a time."""
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    words, word = [], ""
    for c in kept + " ":
        if c.isalnum() or c == "_":
            word += c
        else:
            words += [" " if word in ("a", "an", "the") else word, c]
            word = ""
    return " ".join("".join(words).split())


@given(texts)
def test_normalise_agrees_with_a_readable_loop(text: str) -> None:
    # Python's \b knows no combining marks as word characters, and neither does isalnum.
    assert normalise(text) == slow_normalise(text)


@given(texts, st.lists(texts, min_size=1, max_size=3))
def test_em_is_the_published_one_wherever_the_prediction_has_words(
    prediction: str, golds: list[str]
) -> None:
    published = float(any(slow_normalise(prediction) == slow_normalise(g) for g in golds))
    if slow_normalise(prediction):
        assert em(prediction, golds) == published
    else:
        assert em(prediction, golds) <= published


@given(texts)
def test_an_answer_matches_itself_unless_empty(text: str) -> None:
    assert em(text, [text]) == float(bool(text.strip()))


@pytest.mark.parametrize(
    ("prediction", "golds", "score"),
    [
        ("", ["Paris"], 0),
        ("  ", ["Paris"], 0),
        ("", [""], 0),
        ("A", ["A"], 1),
        ("the", ["A"], 0),  # published: 1
        ("B", ["A"], 0),
        ("The The", ["the"], 0),  # published: 1
        ("3.14", ["314"], 1),
        ("1.0", ["10"], 1),
        ("3,000", ["3000"], 1),
        ("1.0", ["1"], 0),
        ("–5", ["-5"], 0),
        ("“Hello”", ["Hello"], 0),
        ("Cnd", ["Canada"], 0),
        ("bnn", ["banana"], 0),
        ("Beatles", ["The Beatles"], 1),
        ("the cat", ["the cat"], 1),
        ("Black.", ["black"] * 10, 1),
        ("early-life exercise", ["early- life exercise"], 0),
        ("team990", ["Montreal", "team990"], 1),
        ("P", ["Paris"], 0),
    ],
)
def test_known_pairs(prediction: str, golds: list[str], score: int) -> None:
    assert em(prediction, golds) == score


def test_a_string_is_never_taken_for_a_list_of_letters() -> None:
    with pytest.raises(TypeError, match="sequence of strings"):
        em("P", "Paris")


def test_em_is_a_registered_reward() -> None:
    assert REWARDS["em"] is em


@pytest.mark.parametrize(
    ("contents", "gold", "found"),
    [
        ('"Paris"\nThe capital of France.', "the Paris", True),
        ("Parisian life", "Paris", False),
        ("Born in New York City", "new york", True),
        ("Born in New-York", "New York", False),
        ("anything", "the", False),
        ("anything", "", False),
        ("Zoë lives in 東京.", "東京", True),
    ],
)
def test_contains_answer_wants_whole_words(contents: str, gold: str, found: bool) -> None:
    assert contains_answer(contents, [gold]) is found


@given(st.text(), st.text(), st.text())
def test_contains_answer_finds_what_was_put_in(before: str, gold: str, after: str) -> None:
    if normalise(gold):
        assert contains_answer(f"{before} {gold} {after}", ["nowhere 17", gold])
