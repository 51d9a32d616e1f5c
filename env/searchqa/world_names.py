"""Names of the entities of the generated world: unique by construction, without end.

Invented words are mixed-radix numbers over consonant-vowel syllables with endings that differ by
class, so no two classes share a word. The inventory is small on purpose: a tokenizer of a few
hundred pieces spells every name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt

from searchqa.world_random import Permutation, derive_key
from searchqa.world_words import ADJECTIVES, COUNTRIES, LANGUAGES, NOUNS

CONSONANTS = "bdfgklmnprstvz"
SYLLABLES = tuple(c + v for c in CONSONANTS for v in "aeiou")

WORD_FORMS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "first": (tuple(c + v for c in CONSONANTS for v in "aoi"), 1),
    "last": (("nd", "sk", "lt", "rn"), 2),
    "river": (tuple(c + "u" for c in CONSONANTS), 1),
    "city": (("burg", "ville", "port", "stad"), 2),
    "university": (("th",), 2),
    "company": (("x",), 2),
    "realm": (("um",), 2),
}
"""Per class of words, its endings and the fewest syllables before them."""

_FORMS: Mapping[str, tuple[str, ...]] = {
    "company": ("Works", "Group", "House", "Union"),
    "university": ("College", "Institute", "Academy"),
    "river": ("River",),
}


class WordClass:
    """Invented words of one class, numbered: word ``n`` is syllables, then one of its endings.

    Different numbers give different words, because every syllable has two letters and all words
    of a class have equally many. A keyed permutation makes neighbours in number look unlike.
    """

    __slots__ = ("_endings", "_length", "_scramble")

    def __init__(self, key: int, count: int, endings: Sequence[str], syllables: int) -> None:
        """A class of at least ``count`` words with at least ``syllables`` before the ending."""
        while len(SYLLABLES) ** syllables * len(endings) < count:
            syllables += 1
        self._endings = endings
        self._length = syllables
        self._scramble = Permutation(key, len(SYLLABLES) ** syllables * len(endings))

    def __call__(self, number: int) -> str:
        """The capitalised word with this number."""
        number, ending = divmod(self._scramble(number), len(self._endings))
        body = ""
        for _ in range(self._length):
            number, digit = divmod(number, len(SYLLABLES))
            body += SYLLABLES[digit]
        return (body + self._endings[ending]).capitalize()


class Names:
    """Titles of one world's entities, by kind and number within the kind."""

    def __init__(self, seed: int, sizes: Mapping[str, int]) -> None:
        """``sizes`` maps each kind to how many entities it has."""

        def words(name: str, count: int) -> WordClass:
            return WordClass(derive_key(seed, f"words/{name}"), count, *WORD_FORMS[name])

        side = max(48, isqrt(sizes["person"] - 1) + 1)
        first = words("first", side)
        last = words("last", side)
        self._firsts = [first(number) for number in range(side)]
        self._lasts = [last(number) for number in range(side)]
        self._person = Permutation(derive_key(seed, "people"), side * side)
        self._before = {"film": 0, "novel": sizes["film"], "song": sizes["film"] + sizes["novel"]}
        pairs = len(ADJECTIVES) * len(NOUNS)
        self._realms = -(-(self._before["song"] + sizes["song"]) // pairs)
        self._realm = words("realm", self._realms)
        self._work = Permutation(derive_key(seed, "works"), pairs * self._realms)
        self._word = {
            kind: words(kind, sizes[kind]) for kind in ("river", "city", "university", "company")
        }

    def __call__(self, kind: str, number: int) -> str:
        """The title of entity ``number`` of ``kind``, unique in its world."""
        if kind == "person":
            first, last = divmod(self._person(number), len(self._lasts))
            return f"{self._firsts[first]} {self._lasts[last]}"
        if kind in self._before:
            return self._work_title(self._before[kind] + number)
        if kind == "country":
            return COUNTRIES[number]
        if kind == "language":
            return LANGUAGES[number]
        word = self._word[kind](number)
        forms = _FORMS.get(kind)
        return f"{word} {forms[number % len(forms)]}" if forms else word

    def _work_title(self, work: int) -> str:
        rest, noun = divmod(self._work(work), len(NOUNS))
        realm, adjective = divmod(rest, len(ADJECTIVES))
        title = f"The {ADJECTIVES[adjective]} {NOUNS[noun]}"
        return f"{title} of {self._realm(realm)}" if self._realms > 1 else title
