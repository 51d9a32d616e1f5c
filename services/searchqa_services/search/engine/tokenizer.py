"""Text to tokens: the one function that both the index and every query go through.

A token is a maximal run of Unicode word characters (letters, digits, underscore) of the
NFC-normalised, lower-cased text. One-character tokens and digits are kept: ``Vitamin D`` and
``Plan 9`` must be findable. There is no stemmer. Scripts without spaces between words (Chinese,
Japanese, Thai) become one token per run, so only whole runs match; combining vowel signs split.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable
from typing import Literal

Tokenize = Callable[[str], list[str]]
StopWords = Literal["en"] | None

NAME = "unicode-words"
VERSION = 1

_WORD = re.compile(r"\w+")

_ENGLISH_WORDS = """
    a an the
    about after against at before between by during for from in into of off on onto over per
    since than through to under until up upon via with within without
    and as but if nor or so that then though while
    am are be been being can could did do does doing had has have having is
    shall should was were would
    he her hers him his it its me my our ours she their theirs them they this those these
    we you your yours
    how what when where which who whom whose why
    also both each no not only own same such there too very
"""
"""Function words, question words among them because queries are questions. Left out because they
are also names, numerals or months: i (Elizabeth I), us, may, might, will."""

_ENGLISH = frozenset(_ENGLISH_WORDS.split())


def stop_words(name: StopWords) -> frozenset[str]:
    """Return the stop words of a language, or none for ``None``."""
    return _ENGLISH if name == "en" else frozenset()


def make_tokenizer(*, lowercase: bool = True, stopwords: StopWords = "en") -> Tokenize:
    """Return the tokenizing function of an index.

    Args:
        lowercase: Whether case is folded by ``str.lower``.
        stopwords: ``"en"`` drops English function words, ``None`` drops nothing.
    """
    dropped = stop_words(stopwords)

    def tokenize(text: str) -> list[str]:
        composed = text if text.isascii() else unicodedata.normalize("NFC", text)
        words: list[str] = _WORD.findall(composed.lower() if lowercase else composed)
        return [word for word in words if word.lower() not in dropped] if dropped else words

    return tokenize


def describe(*, lowercase: bool, stopwords: StopWords) -> dict[str, str | int | bool | None]:
    """Return everything about a tokenizer that decides its tokens, for the fingerprint."""
    words = " ".join(sorted(stop_words(stopwords)))
    return {
        "name": NAME,
        "version": VERSION,
        "lowercase": lowercase,
        "stopwords": stopwords,
        "stopwords_sha256": hashlib.sha256(words.encode()).hexdigest()[:16],
    }
