"""The service's own words for a search: what any dialect is read into, and the shape of answers.

The pydantic models describe the JSON form for the OpenAPI page. Requests are validated by hand in
``dialects``, because a rejected client deserves a sentence and the hot path the speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from searchqa_services.search.engine.errors import SearchServiceError
from searchqa_services.search.engine.protocol import Hit


class RequestFault(SearchServiceError):
    """A request that gets an error status; the message goes to the client."""

    status = 500
    retry = False


class Malformed(RequestFault):
    """The request says something this service cannot read (422)."""

    status = 422


class TooLarge(RequestFault):
    """The body is longer than the limit (413)."""

    status = 413


class Unavailable(RequestFault):
    """Not ready or overloaded: 503, which old clients retry, with ``Retry-After``."""

    status = 503
    retry = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request may ask for."""

    default_top_k: int
    """Hits per query where the request names none."""
    max_top_k: int
    """Largest ``topk``, after it was cut to the size of the corpus."""
    max_hits: int
    """Most hits of one request: its queries times its ``topk``."""
    max_queries: int
    """Most queries in one request."""
    max_query_chars: int
    """A longer query is searched by its first so many characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """One request, whatever dialect it came in."""

    queries: tuple[str, ...]
    """May be empty, and may hold empty strings; the answer has one list for each."""
    top_k: int
    """At least 1."""
    with_scores: bool
    """Answer ``{"document": ..., "score": ...}`` rather than bare documents."""
    single: bool
    """Came as one ``query``: the answer also carries its hits flat, as ``results``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """One request answered: bytes for the client, numbers for the metrics."""

    body: bytes
    media_type: str
    queries: int
    empty: int
    """Queries without a hit."""
    truncated: int
    """Queries cut at the length limit."""


Results = Sequence[Sequence[Hit]]


class DocumentModel(BaseModel):
    """A document on the wire."""

    id: str
    contents: str
    """As stored; by itself the title in quotes, a newline, the text."""
    title: str
    text: str


class ScoredDocument(BaseModel):
    """A document with its score."""

    document: DocumentModel
    score: float


class RetrieveAnswer(BaseModel):
    """One list per query, in order; an empty list where nothing matched."""

    result: list[list[ScoredDocument]] | list[list[DocumentModel]]


class Fault(BaseModel):
    """What every error status carries."""

    detail: str


class Readiness(BaseModel):
    """The index that answers."""

    status: str
    fingerprint: str
    size: int
    tokenizer: dict[str, Any] | None


RETRIEVE_EXAMPLE = {"queries": ["who wrote Hamlet"], "topk": 3, "return_scores": True}

RETRIEVE_OPENAPI: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "example": RETRIEVE_EXAMPLE,
                "schema": {
                    "type": "object",
                    "properties": {
                        "queries": {"type": "array", "items": {"type": "string"}},
                        "query": {
                            "oneOf": [
                                {"type": "string"},
                                {"type": "array", "items": {"type": "string"}},
                            ]
                        },
                        "topk": {
                            "type": ["integer", "null"],
                            "minimum": 0,
                            "description": "Also top_k, k or top_n; 0 and null mean the default."
                            " More than the corpus has is cut, up to the server's max_top_k.",
                        },
                        "return_scores": {
                            "type": ["boolean", "null"],
                            "description": "Also return_score. Left out: false for queries,"
                            " true for query or where top_k is used.",
                        },
                    },
                },
            }
        },
    }
}
