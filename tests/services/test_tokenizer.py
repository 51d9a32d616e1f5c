"""One tokenizer for index and queries, that keeps what carries meaning."""

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from searchqa_services.search.engine.tokenizer import describe, make_tokenizer

tokenize = make_tokenizer()


def test_single_characters_and_digits_are_kept():
    words = tokenize("Plan 9 from Bell Labs, U2, X, C, Vitamin D, 7")
    assert words == ["plan", "9", "bell", "labs", "u2", "x", "c", "vitamin", "d", "7"]


def test_stop_words_are_a_setting():
    assert tokenize("the Mother of All") == ["mother", "all"]
    assert make_tokenizer(stopwords=None)("the Mother") == ["the", "mother"]
    assert make_tokenizer(lowercase=False)("The Mother") == ["Mother"]


def test_composed_and_decomposed_accents_are_the_same_word():
    for form in ("NFC", "NFD"):
        assert tokenize(unicodedata.normalize(form, "Zoë São")) == ["zoë", "são"]


def test_names_that_look_like_function_words_survive():
    assert tokenize("Elizabeth I, May 1910, Will, US") == [
        "elizabeth",
        "i",
        "may",
        "1910",
        "will",
        "us",
    ]


def test_text_without_spaces_is_one_token():
    assert tokenize("日本 東京都") == ["日本", "東京都"]


@settings(deadline=None)
@given(st.text())
def test_every_string_has_tokens_that_tokenize_to_themselves(text):
    words = tokenize(text)
    assert tokenize(" ".join(words)) == words


def test_a_description_differs_where_tokens_differ():
    kinds = [describe(lowercase=c, stopwords=s) for c in (True, False) for s in ("en", None)]
    assert len({str(kind) for kind in kinds}) == 4
