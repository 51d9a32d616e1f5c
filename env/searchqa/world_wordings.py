"""Question wordings of the generated world.

They compose: an inner hop becomes a noun phrase, the last one a sentence around it, so a chain of
any length reads as English. Where a person stands between, a statement with a relative question
("X was directed by someone who was born in which country?") is one more wording.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation: what its values are and how it is asked for."""

    value: str
    """Kind of its values: an entity kind of the world, or a literal kind such as ``trade``."""
    ask: tuple[str, ...]
    """Full questions about ``{x}``, a title or a noun phrase; at least three."""
    phrase: tuple[str, ...] = ()
    """Noun phrases for the value, used as ``{x}`` of the next hop; only for entity values."""
    clause: str = ""
    """A statement that ends in ``someone``, to be followed by a ``tail``; only for persons."""
    tail: str = ""
    """A relative question that follows a ``clause``; only for facts about persons."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A question about one fact of two things of the same kind."""

    relation: str
    """The fact compared."""
    rule: str
    """``same``: answered yes or no. ``earlier``: answered with the thing of the lower year."""
    ask: tuple[str, ...]
    """Questions about ``{a}`` and ``{b}``, each a title or a noun phrase; at least three."""


def _role(noun: str, verb: str, passive: str) -> Relation:
    """A person's part in something: ``director``, ``directed``, ``was directed by``."""
    return Relation(
        "person",
        (f"Who {verb} {{x}}?", f"Who is the {noun} of {{x}}?", f"{{x}} {passive} whom?"),
        (f"the {noun} of {{x}}", f"the person who {verb} {{x}}", f"the one who {verb} {{x}}"),
        f"{{x}} {passive} someone",
    )


def _made_in(value: str, noun: str, verb: str) -> Relation:
    """The country, language or year in which something ``was`` ``verb``."""
    return Relation(
        value,
        (
            f"In which {noun} was {{x}} {verb}?",
            f"Which {noun} was {{x}} {verb} in?",
            f"{{x}} was {verb} in which {noun}?",
        ),
        (f"the {noun} in which {{x}} was {verb}", f"the {noun} {{x}} was {verb} in"),
    )


def _named(value: str, *nouns: str) -> Relation:
    """A property with names of its own: ``What is the capital of {x}?``."""
    first = nouns[0]
    return Relation(
        value,
        (
            *(f"What is the {noun} of {{x}}?" for noun in nouns),
            f"Name the {first} of {{x}}.",
            f"{{x}} has which {first}?",
        ),
        tuple(f"the {noun} of {{x}}" for noun in nouns),
    )


RELATIONS: Mapping[str, Relation] = {
    "director": _role("director", "directed", "was directed by"),
    "actor": _role("star", "starred in", "stars"),
    "composer": _role("composer", "scored", "was scored by"),
    "author": _role("author", "wrote", "was written by"),
    "illustrator": _role("illustrator", "illustrated", "was illustrated by"),
    "singer": _role("singer", "sang", "was sung by"),
    "producer": _role("producer", "produced", "was produced by"),
    "founder": _role("founder", "founded", "was founded by"),
    "chief": _role("chief", "leads", "is led by"),
    "mayor": _role("mayor", "governs", "is governed by"),
    "president": _role("president", "rules", "is ruled by"),
    "film_country": _made_in("country", "country", "filmed"),
    "novel_country": _made_in("country", "country", "published"),
    "song_country": _made_in("country", "country", "recorded"),
    "film_language": _made_in("language", "language", "filmed"),
    "novel_language": _made_in("language", "language", "written"),
    "film_year": _made_in("year", "year", "released"),
    "novel_year": _made_in("year", "year", "printed"),
    "song_instrument": _named("instrument", "lead instrument", "main instrument"),
    "film_hero": _named("trade", "hero's trade", "trade of the hero"),
    "novel_hero": _named("trade", "hero's trade", "trade of the hero"),
    "song_hero": _named("trade", "hero's trade", "trade of the hero"),
    "company_city": _named("city", "home city", "seat"),
    "company_country": _named("country", "home country", "country"),
    "company_language": _named("language", "working language", "staff language"),
    "product": _named("product", "product", "main product"),
    "birth_year": Relation(
        "year",
        (
            "In which year was {x} born?",
            "What is the birth year of {x}?",
            "{x} was born in which year?",
        ),
        tail="who was born in which year?",
    ),
    "birth_city": Relation(
        "city",
        (
            "In which city was {x} born?",
            "What is the birth city of {x}?",
            "{x} was born in which city?",
        ),
        ("the birth city of {x}", "the city where {x} was born", "the city {x} was born in"),
        tail="who was born in which city?",
    ),
    "birth_country": Relation(
        "country",
        (
            "In which country was {x} born?",
            "What is the birth country of {x}?",
            "{x} was born in which country?",
        ),
        (
            "the birth country of {x}",
            "the country where {x} was born",
            "the country {x} was born in",
        ),
        tail="who was born in which country?",
    ),
    "mother_tongue": Relation(
        "language",
        (
            "Which language did {x} grow up with?",
            "What is the mother tongue of {x}?",
            "{x} grew up with which language?",
        ),
        ("the mother tongue of {x}", "the language {x} grew up with"),
        tail="who grew up with which language?",
    ),
    "profession": Relation(
        "trade",
        (
            "Which trade did {x} learn?",
            "What is the profession of {x}?",
            "{x} learned which trade?",
        ),
        tail="who learned which trade?",
    ),
    "instrument": Relation(
        "instrument",
        (
            "Which instrument does {x} play?",
            "What is the instrument of {x}?",
            "{x} plays which instrument?",
        ),
        tail="who plays which instrument?",
    ),
    "employer": Relation(
        "company",
        (
            "Which company does {x} work for?",
            "What is the employer of {x}?",
            "{x} works for which company?",
        ),
        ("the employer of {x}", "the company {x} works for"),
        tail="who works for which company?",
    ),
    "university": Relation(
        "university",
        (
            "At which university did {x} study?",
            "What is the university of {x}?",
            "{x} studied at which university?",
        ),
        ("the university of {x}", "the university where {x} studied"),
        tail="who studied at which university?",
    ),
    "city_country": _named("country", "country", "home country"),
    "river": _named("river", "river", "main river"),
    "capital": _named("city", "capital", "capital city"),
    "currency": _named("currency", "currency", "money"),
    "official_language": _named("language", "official language", "state language"),
    "sea": _named("sea", "sea", "outlet"),
    "university_city": _named("city", "city", "home city"),
    "university_year": _made_in("year", "year", "opened"),
    "script": _named("script", "script", "written form"),
}

COMPARISONS: tuple[Comparison, ...] = (
    Comparison(
        "birth_country",
        "same",
        (
            "Were {a} and {b} born in the same country?",
            "Do {a} and {b} have the same birth country?",
            "Is the birth country of {a} the same as that of {b}?",
        ),
    ),
    Comparison(
        "mother_tongue",
        "same",
        (
            "Did {a} and {b} grow up with the same language?",
            "Do {a} and {b} have the same mother tongue?",
            "Is the mother tongue of {a} the same as that of {b}?",
        ),
    ),
    Comparison(
        "profession",
        "same",
        (
            "Did {a} and {b} learn the same trade?",
            "Do {a} and {b} have the same profession?",
            "Is the profession of {a} the same as that of {b}?",
        ),
    ),
    Comparison(
        "birth_year",
        "earlier",
        (
            "Who is older, {a} or {b}?",
            "Who was born first, {a} or {b}?",
            "Which of {a} and {b} was born earlier?",
        ),
    ),
    Comparison(
        "film_year",
        "earlier",
        (
            "Which film was released first, {a} or {b}?",
            "Which of the films {a} and {b} was released earlier?",
            "Of {a} and {b}, which film is older?",
        ),
    ),
    Comparison(
        "novel_year",
        "earlier",
        (
            "Which novel was printed first, {a} or {b}?",
            "Which of the novels {a} and {b} was printed earlier?",
            "Of {a} and {b}, which novel is older?",
        ),
    ),
)

DEMO_RELATIONS = frozenset(
    (
        "director",
        "author",
        "singer",
        "founder",
        "birth_country",
        "mother_tongue",
        "profession",
        "instrument",
    )
)
"""Relations of the demo's two-hop questions: four that lead to a person, four facts of persons."""


def chain_text(title: str, relations: tuple[str, ...], choice: int) -> str:
    """The question along ``relations`` from ``title``; ``choice`` picks among all wordings."""
    *inner, last = relations
    text = title
    for depth, name in enumerate(inner):
        relation = RELATIONS[name]
        tail = RELATIONS[last].tail
        if depth == len(inner) - 1 and relation.clause and tail:
            choice, use_clause = divmod(choice, 4)
            if use_clause == 0:
                return _sentence(f"{relation.clause.replace('{x}', text)} {tail}")
        choice, pick = divmod(choice, len(relation.phrase))
        text = relation.phrase[pick].replace("{x}", text)
    ask = RELATIONS[last].ask
    return _sentence(ask[choice % len(ask)].replace("{x}", text))


def comparison_text(a: str, b: str, comparison: Comparison, choice: int) -> str:
    """The question that compares ``a`` with ``b``, each a title or a noun phrase."""
    template = comparison.ask[choice % len(comparison.ask)]
    return _sentence(template.replace("{a}", a).replace("{b}", b))


def noun_phrase(title: str, name: str, choice: int) -> str:
    """``the director of The Silent Harbor``."""
    phrase = RELATIONS[name].phrase
    return phrase[choice % len(phrase)].replace("{x}", title)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
