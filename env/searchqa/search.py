"""Where passages come from: one small protocol, the in-process index, and how a name is opened.

The embedded search is the same BM25 code the search service runs, so both return the same hits
in the same order. Indexes are built once per process and shared by all environments in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from searchqa.errors import ConfigError
from searchqa.questions import demo_world, parse_demo
from searchqa.types import SearchHit


@runtime_checkable
class SearchBackend(Protocol):
    """Anything that can be searched. Must be stateless: equal calls have equal results."""

    @property
    def fingerprint(self) -> str:
        """Identifies what is searched; empty where unknown."""
        ...

    def search(self, queries: Sequence[str], top_k: int) -> list[list[SearchHit]]:
        """One list of hits for each query, in order, best first.

        Args:
            queries: At least one.
            top_k: Most hits for each.

        Raises:
            SearchUnavailable: The search could not be carried out.
        """
        ...

    def check_ready(self) -> None:
        """Return when the search can be used; bounded in time.

        Raises:
            SearchUnavailable: It cannot.
        """
        ...


class EmbeddedSearch:
    """BM25 in this process. Pickles as the name it was opened by, not as its index."""

    def __init__(self, index: Any, reopen: tuple[Any, ...] = ()) -> None:
        """Wrap an index.

        Args:
            index: A ``searchqa_services.search.engine.bm25.BM25Index``.
            reopen: A function and its arguments that give an equal search in another process.
        """
        self._index = index
        self._reopen = reopen

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the index."""
        return str(self._index.fingerprint)

    def search(self, queries: Sequence[str], top_k: int) -> list[list[SearchHit]]:
        """See :class:`SearchBackend`; never fails."""
        return [
            [
                SearchHit(
                    id=hit.document.id, contents=hit.document.contents, score=float(hit.score)
                )
                for hit in hits
            ]
            for hits in self._index.search(list(queries), top_k)
        ]

    def check_ready(self) -> None:
        """Always ready."""

    def __deepcopy__(self, memo: dict[int, Any]) -> EmbeddedSearch:
        """Immutable: a copy is the search itself."""
        return self

    def __reduce__(self) -> Any:
        return self._reopen or (_rebuild, (tuple(self._index.documents), self._index.params))


def _rebuild(documents: Sequence[Any], params: Any) -> EmbeddedSearch:
    from searchqa_services.search.engine.bm25 import BM25Index

    return EmbeddedSearch(BM25Index.from_documents(documents, params))


@lru_cache(maxsize=4)
def _demo_search(**world: float) -> EmbeddedSearch:
    from searchqa_services.search.engine.bm25 import BM25Index, Document

    passages = demo_world(**world).passages
    index = BM25Index.from_documents(Document(p.id, p.title, p.text) for p in passages)
    return EmbeddedSearch(index, (_open_demo, (tuple(world.items()),)))


def _open_demo(world: tuple[tuple[str, float], ...]) -> EmbeddedSearch:
    return _demo_search(**dict(world))


@lru_cache(maxsize=8)
def _path_search(path: str) -> EmbeddedSearch:
    from searchqa_services.search.engine.bm25 import BM25Index
    from searchqa_services.search.engine.corpus import read_corpus
    from searchqa_services.search.engine.errors import SearchServiceError

    try:  # the status is this package's own error; the message is already one sentence
        if Path(path).is_dir():
            index = BM25Index.load(path)
        else:
            index = BM25Index.from_documents(document for _, document in read_corpus(path))
    except (SearchServiceError, OSError) as error:
        raise ConfigError(f"search='embedded:{path}' cannot be opened: {error}") from error
    return EmbeddedSearch(index, (_path_search, (path,)))


@lru_cache(maxsize=8)
def _http_search(url: str, timeout_s: float) -> SearchBackend:
    from searchqa.http_search import HttpSearch

    return HttpSearch(url, timeout_s=timeout_s)


def open_search(search: str | SearchBackend, questions: str, timeout_s: float) -> SearchBackend:
    """Open a search by its name; equal names share one backend per process.

    Args:
        search: ``embedded`` (the demo world of ``questions``), ``embedded:PATH`` (an index folder
            or a corpus file), ``http(s)://...`` (a service), or a backend, which is returned.
        questions: The environment's ``questions`` where that is a string, else "".
        timeout_s: Total deadline of one call to a service, in seconds.

    Raises:
        ConfigError: The name means nothing or what it names cannot be opened.
    """
    if not isinstance(search, str):
        if not isinstance(search, SearchBackend):
            raise ConfigError(
                f"search={search!r} is neither a text nor has it search(), check_ready() and "
                "fingerprint, as a SearchBackend must"
            )
        return search
    if search == "embedded":
        return _demo_search(**_demo_config(questions))
    if search.startswith("embedded:"):
        return _path_search(search.removeprefix("embedded:"))
    if search.startswith(("http://", "https://")):
        return _http_search(search, timeout_s)
    raise ConfigError(
        f"search={search!r} is unknown; use 'embedded', 'embedded:PATH' or the URL of a service"
    )


def _demo_config(questions: str) -> dict[str, float]:
    if not questions.startswith("demo:"):
        raise ConfigError(
            "search='embedded' searches the demo world, but the questions are not from it; "
            "use 'embedded:PATH' with a corpus file or an index folder, or the URL of a service"
        )
    return parse_demo(questions).world
