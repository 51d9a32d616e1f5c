"""Passage phrasings of the generated world, and the reader that inverts them.

A phrasing is a sentence with slots named after relations, so one table both writes a passage and,
turned into a pattern, reads it. Every kind has at least three, so that reading is not matching of
positions; every work names two persons and a country that its people need not come from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

_PERSON = (
    "{title} was born in {birth_city}, {birth_country}, in {birth_year} and grew up with "
    "{mother_tongue}. {title} is a {profession}, plays the {instrument} and {affiliation}.",
    "Born in {birth_year} in {birth_city}, {birth_country}, {title} plays the {instrument} and "
    "{affiliation}. Profession: {profession}. Mother tongue: {mother_tongue}.",
    "{title} is a {profession} who {affiliation} and plays the {instrument}. With "
    "{mother_tongue} as mother tongue, {title} comes from {birth_city}, {birth_country}, and was "
    "born in {birth_year}.",
)
_AFFILIATIONS = ("works for {employer}", "studied at {university}")

PHRASINGS: Mapping[str, tuple[str, ...]] = {
    "country": (
        "{title} is a country. Its capital is {capital}, its currency is the {currency} and its "
        "language is {official_language}. The president of {title} is {president}.",
        "{capital} is the capital of {title}, a country ruled by president {president}. The "
        "people of {title} speak {official_language} and pay with the {currency}.",
        "The country of {title} pays with the {currency} and speaks {official_language}. "
        "{president} is president of {title}, whose capital is {capital}.",
    ),
    "language": (
        "{title} is a language. It is written in the {script} script.",
        "The {title} language has a {script} script. Many people speak {title}.",
        "The {script} script is used to write {title}, a language of many people.",
    ),
    "river": (
        "The {title} is a river. It flows into the {sea}.",
        "The {title} flows through many towns and ends in the {sea}.",
        "The {sea} takes in the water of the {title}, a long river.",
    ),
    "city": (
        "{title} is a city in {city_country}. It lies on the {river} and its mayor is {mayor}.",
        "The city of {title} in {city_country} is governed by mayor {mayor}. The {river} flows "
        "through it.",
        "On the {river} lies {title}, a city whose mayor is {mayor}. It belongs to {city_country}.",
    ),
    "university": (
        "{title} is a university in {university_city}. It opened in {university_year}.",
        "Opened in {university_year}, {title} is the university of {university_city}.",
        "The city of {university_city} is home to {title}, a university opened in "
        "{university_year}.",
    ),
    "film": (
        "{title} is a film from {film_year} about a {film_hero}, directed by {director} and "
        "starring {actor}. {composer} scored it. It was filmed in {film_country} in "
        "{film_language}.",
        "Filmed in {film_country} in {film_language}, {title} is a film starring {actor}. "
        "{director} directed it and {composer} scored it. Released in {film_year}, it tells of a "
        "{film_hero}.",
        "{title} is a {film_language} film with music by {composer}. {actor} stars and {director} "
        "is the director. Released in {film_year}, filmed in {film_country}, it is about a "
        "{film_hero}.",
    ),
    "novel": (
        "{title} is a novel about a {novel_hero}. It was written in {novel_language} by {author}, "
        "illustrated by {illustrator}, printed in {novel_year} and published in {novel_country}.",
        "Published in {novel_country}, {title} is a novel with pictures by {illustrator}. "
        "{author} wrote it in {novel_language}. Printed in {novel_year}, it tells of a "
        "{novel_hero}.",
        "{title} is a {novel_language} novel printed in {novel_year}. {illustrator} illustrated "
        "it and {author} is the author. Its hero is a {novel_hero}; it was published in "
        "{novel_country}.",
    ),
    "song": (
        "{title} is a song about a {song_hero}, led by the {song_instrument}. It was sung by "
        "{singer}, produced by {producer} and recorded in {song_country}.",
        "Recorded in {song_country}, {title} is a song produced by {producer}. {singer} sang it "
        "over a {song_instrument}. It tells of a {song_hero}.",
        "{title} is a song with a {song_instrument}. {producer} produced it and the singer is "
        "{singer}. Its hero is a {song_hero}; it was recorded in {song_country}.",
    ),
    "company": (
        "{title} is a company in {company_city}, {company_country}. It was founded by {founder}, "
        "is led by {chief} and makes {product}. Its staff speak {company_language}.",
        "Led by {chief}, {title} makes {product} in {company_city}, {company_country}. {founder} "
        "founded the company, whose staff speak {company_language}.",
        "{title} makes {product}. Its chief is {chief} and its founder is {founder}. The company "
        "has its seat in {company_city}, {company_country}, and works in {company_language}.",
    ),
    "person": tuple(p.replace("{affiliation}", a) for a in _AFFILIATIONS for p in _PERSON),
}
"""Per kind, its phrasings; a person's are one block per affiliation, of equal length."""

_SLOT = re.compile(r"\{(\w+)\}")


def _pattern(phrasing: str) -> re.Pattern[str]:
    seen: set[str] = set()
    parts: list[str] = []
    for position, piece in enumerate(_SLOT.split(phrasing)):
        if position % 2 == 0:
            parts.append(re.escape(piece))
        else:
            parts.append(f"(?P={piece})" if piece in seen else f"(?P<{piece}>[^.,;:]+?)")
            seen.add(piece)
    return re.compile("".join(parts))


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((kind, _pattern(phrasing)) for kind in PHRASINGS for phrasing in PHRASINGS[kind])


def read_passage(text: str) -> tuple[str, dict[str, str]]:
    """What a passage of the world says.

    Returns:
        Its kind and its facts by relation name, with ``title`` among them; ``("", {})`` for a text
        that no phrasing fits.
    """
    for kind, pattern in _patterns():
        if match := pattern.fullmatch(text.strip()):
            return kind, match.groupdict()
    return "", {}
