"""Prometheus metrics of one service, in a registry of its own: several may share a process."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from searchqa_services.search.engine.protocol import Index
from searchqa_services.search.schema import SearchAnswer

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The numbers that say whether searches are served, found and quick."""

    def __init__(self, in_flight: Callable[[], int]) -> None:
        """Register all metrics; ``in_flight`` is read at each scrape."""
        self.registry = CollectorRegistry()
        name = "searchqa_search_"
        self.requests = Counter(
            name + "requests", "Answers by status.", ["status"], registry=self.registry
        )
        self.seconds = Histogram(
            name + "request_seconds",
            "Time from request to answer.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.queries = Counter(name + "queries", "Queries searched.", registry=self.registry)
        self.empty = Counter(name + "queries_empty", "Without a hit.", registry=self.registry)
        self.truncated = Counter(
            name + "queries_truncated", "Cut at the length limit.", registry=self.registry
        )
        self.documents = Gauge(
            name + "index_documents", "Indexed documents.", ["fingerprint"], registry=self.registry
        )
        waiting = Gauge(name + "in_flight", "Requests in work.", registry=self.registry)
        waiting.set_function(in_flight)

    def loaded(self, index: Index) -> None:
        """Note the index that answers."""
        self.documents.labels(index.fingerprint).set(index.size)

    def answered(self, answer: SearchAnswer) -> None:
        """Count one answered request's queries."""
        self.queries.inc(answer.queries)
        self.empty.inc(answer.empty)
        self.truncated.inc(answer.truncated)

    def render(self) -> bytes:
        """Return the exposition text."""
        return generate_latest(self.registry)


class MeasureRequests:
    """Pure ASGI middleware: times and counts the answers of one path, refusals included."""

    def __init__(self, app: ASGIApp, metrics: Metrics, path: str) -> None:
        """Wrap an application."""
        self._app = app
        self._metrics = metrics
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything through; note status and time of ``path``."""
        if scope["type"] != "http" or scope["path"] != self._path:
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.requests.labels(str(message["status"])).inc()
                self._metrics.seconds.observe(time.perf_counter() - start)
            await send(message)

        await self._app(scope, receive, noting)
