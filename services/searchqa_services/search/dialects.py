"""The wire forms of ``POST /retrieve``: bytes to a ``SearchRequest``, hits to bytes.

One JSON form reads the clients of Search-R1 and verl (``queries``), SkyRL and verl-agent
(``query``), rLLM (``query`` with ``top_k``) and slime (``return_scores: false``), and answers each
with what its parser looks for. A further form is one more ``Dialect`` and a line in ``choose``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from searchqa_services.search.engine.documents import Document, well_formed
from searchqa_services.search.engine.protocol import Hit
from searchqa_services.search.schema import (
    RETRIEVE_EXAMPLE,
    Limits,
    Malformed,
    Results,
    SearchRequest,
)

_EXAMPLE = json.dumps(RETRIEVE_EXAMPLE)
_TOP_K_NAMES = ("topk", "top_k", "k", "top_n")
_SCORE_NAMES = ("return_scores", "return_score")


class Dialect(Protocol):
    """One way of writing requests and answers."""

    media_type: str

    def parse(self, body: bytes, limits: Limits) -> SearchRequest:
        """Read a request.

        Raises:
            Malformed: The body says nothing this dialect knows.
        """
        ...

    def render(self, request: SearchRequest, results: Results) -> bytes:
        """Write the answer to a request: one list of hits per query, in order."""
        ...


def choose(content_type: str, body: bytes) -> Dialect:
    """Return the dialect a body is written in; today there is one."""
    return JSON


class JsonDialect:
    """JSON in, JSON out."""

    media_type = "application/json"

    def parse(self, body: bytes, limits: Limits) -> SearchRequest:
        """Read a JSON request; unknown keys are ignored."""
        return read_fields(_object(body), limits)

    def render(self, request: SearchRequest, results: Results) -> bytes:
        """Write ``{"result": [[...], ...]}``, and for a single query its hits flat besides."""
        # One dumps per query, not one for all: the encoder holds the GIL, and /health must answer.
        lists = [_dumps(wire_hits(hits, request.with_scores)) for hits in results]
        text = f'{{"result": [{", ".join(lists)}]'
        if request.single:
            query = _dumps(well_formed(request.queries[0]))
            count = len(results[0])
            text += f', "results": {lists[0]}, "query": {query}, "num_results": {count}'
        return (text + "}").encode()


JSON = JsonDialect()


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shown(value: object) -> str:
    """A wrong value in a sentence: short, and fit for UTF-8."""
    try:  # the status of what is too deep to write is its kind
        return well_formed(_dumps(value)[:60])
    except RecursionError:
        return f"a deep {type(value).__name__}"


def wire_hits(hits: Sequence[Hit], with_scores: bool) -> list[dict[str, Any]]:
    """Return hits as wire objects, with a Python float for the score or as bare documents."""
    if with_scores:
        return [{"document": wire_document(h.document), "score": h.score} for h in hits]
    return [wire_document(hit.document) for hit in hits]


def wire_document(document: Document) -> dict[str, str]:
    """Return a document as clients expect it; all of them read ``contents``."""
    return {
        "id": document.id,
        "contents": document.contents,
        "title": document.title,
        "text": document.text,
    }


def read_fields(fields: Mapping[str, Any], limits: Limits) -> SearchRequest:
    """Read the fields of a request, by whichever of their names it uses.

    Raises:
        Malformed: A field is missing, doubled or of the wrong type.
    """
    queries, single = _queries(fields, limits)
    return SearchRequest(
        queries=queries,
        top_k=_top_k(fields, limits),
        with_scores=_with_scores(fields),
        single=single,
    )


def _object(body: bytes) -> Mapping[str, Any]:
    if not body.strip():
        raise Malformed(f"The body is empty; send JSON such as {_EXAMPLE}.")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"The body is not JSON ({error}); send for instance {_EXAMPLE}.") from error
    if not isinstance(fields, dict):
        raise Malformed(f"The body must be a JSON object such as {_EXAMPLE}.")
    return fields


def _queries(fields: Mapping[str, Any], limits: Limits) -> tuple[tuple[str, ...], bool]:
    many, one = fields.get("queries"), fields.get("query")
    if (many is None) == (one is None):
        raise Malformed(f"Give either 'queries' or 'query', for instance {_EXAMPLE}.")
    if isinstance(one, str):
        return (one,), True
    name, given = ("queries", many) if one is None else ("query", one)
    if not isinstance(given, list) or not all(isinstance(query, str) for query in given):
        raise Malformed(f"'{name}' must be a list of strings, for instance {_EXAMPLE}.")
    if len(given) > limits.max_queries:
        raise Malformed(
            f"{len(given)} queries in one request; the limit is {limits.max_queries}, so send"
            " several requests."
        )
    return tuple(given), False


def _top_k(fields: Mapping[str, Any], limits: Limits) -> int:
    name, value = _only(fields, _TOP_K_NAMES)
    if value is None:
        return limits.default_top_k
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Malformed(
            f"'{name}' must be a whole number of at least 0 (0 means {limits.default_top_k}),"
            f" not {_shown(value)}."
        )
    return value or limits.default_top_k


def _with_scores(fields: Mapping[str, Any]) -> bool:
    name, value = _only(fields, _SCORE_NAMES)
    if value is None:
        # Clients that leave it out: Search-R1's expect bare documents, rLLM's expect scores.
        return "top_k" in fields or fields.get("query") is not None
    if not isinstance(value, bool):
        raise Malformed(f"'{name}' must be true or false, not {_shown(value)}.")
    return value


def _only(fields: Mapping[str, Any], names: Sequence[str]) -> tuple[str, Any]:
    given = [(name, fields[name]) for name in names if fields.get(name) is not None]
    if len(given) > 1:
        raise Malformed(f"Give only one of {' and '.join(repr(name) for name, _ in given)}.")
    return given[0] if given else (names[0], None)
