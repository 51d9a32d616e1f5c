"""The FastAPI application: one search route, and what an operator needs beside it.

``/health`` says the process lives, ``/ready`` that the index answers, ``/metrics`` how it does.
The index is loaded in the background, so that the first two answer from the first second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from searchqa_services.search.dialects import choose
from searchqa_services.search.engine.bm25 import BM25Index
from searchqa_services.search.engine.documents import well_formed
from searchqa_services.search.engine.errors import SearchServiceError
from searchqa_services.search.engine.protocol import Index
from searchqa_services.search.metrics import MEDIA_TYPE, MeasureRequests, Metrics
from searchqa_services.search.pool import WorkPool
from searchqa_services.search.schema import (
    RETRIEVE_OPENAPI,
    Fault,
    Limits,
    Malformed,
    Readiness,
    RequestFault,
    RetrieveAnswer,
    SearchAnswer,
    TooLarge,
    Unavailable,
)
from searchqa_services.search.settings import Settings

logger = logging.getLogger(__name__)

FINGERPRINT_HEADER = "X-Index-Fingerprint"
_FAULTS: dict[int | str, dict[str, Any]] = {code: {"model": Fault} for code in (413, 422, 503)}


class SearchService:
    """The index, the threads that search it and the metrics: what the routes share."""

    def __init__(self, settings: Settings, index: Index | None) -> None:
        """Start without an index unless one is given."""
        self.settings = settings
        self.pool = WorkPool(settings.threads, settings.queue_size)
        self.metrics = Metrics(lambda: self.pool.in_flight)
        self._index: Index | None = None
        self._failure = ""
        if index is not None:
            self._use(index)

    def _use(self, index: Index) -> None:
        self._index = index
        self.metrics.loaded(index)

    async def load(self) -> None:
        """Load the index of the settings; a failure becomes the answer of ``/ready``."""
        if self._index is not None or self.settings.index is None:
            return
        try:
            self._use(await asyncio.to_thread(BM25Index.load, self.settings.index))
        except Exception as error:  # whatever it is, /ready must say it
            known = isinstance(error, SearchServiceError | OSError)
            self._failure = f"The index cannot be loaded: {error if known else repr(error)}"
            logger.error(self._failure, exc_info=not known)

    @property
    def index(self) -> Index:
        """The index.

        Raises:
            Unavailable: There is none yet.
        """
        if self._index is None:
            raise Unavailable(self._failure or "The index is not loaded yet; try again.")
        return self._index

    async def retrieve(self, request: Request) -> tuple[SearchAnswer, str]:
        """Answer one request; return the answer and the fingerprint behind it."""
        index = self.index
        self.pool.check()  # refuse before reading the body
        body = await _read(request, self.settings.max_body_bytes)
        kind = request.headers.get("content-type", "")
        work = partial(answer, index, kind, body, self.settings.limits)
        try:  # the status is 500, counted and answered like every other fault
            found = await self.pool.run(work)
        except RequestFault:
            raise
        except Exception as error:
            logger.exception("a search failed")
            raise RequestFault("The search failed; the server's log says why.") from error
        self.metrics.answered(found)
        return found, index.fingerprint


async def _read(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    length = 0
    async for part in request.stream():
        length += len(part)
        if length > limit:
            raise TooLarge(f"The body is longer than {limit} bytes; send several requests.")
        parts.append(part)
    return b"".join(parts)


def answer(index: Index, content_type: str, body: bytes, limits: Limits) -> SearchAnswer:
    """Read a request, search and write the answer: the whole of a worker thread's job.

    Raises:
        Malformed: The body is not a request, or asks for too much.
    """
    dialect = choose(content_type, body)
    request = dialect.parse(body, limits)
    top_k = min(request.top_k, index.size)
    if top_k > limits.max_top_k:
        raise Malformed(f"At most {limits.max_top_k} hits per query, not {request.top_k}.")
    if len(request.queries) * top_k > limits.max_hits:
        raise Malformed(
            f"{len(request.queries)} queries with {top_k} hits each ask for more than"
            f" {limits.max_hits} hits; send several requests."
        )
    queries = [query[: limits.max_query_chars] for query in request.queries]
    results = index.search(queries, top_k)
    return SearchAnswer(
        body=dialect.render(request, results),
        media_type=dialect.media_type,
        queries=len(queries),
        empty=sum(not hits for hits in results),
        truncated=sum(len(q) > limits.max_query_chars for q in request.queries),
    )


def create_app(settings: Settings | None = None, index: Index | None = None) -> FastAPI:
    """Return the application.

    Args:
        settings: Limits, pool sizes and where the index lies; default from the environment.
        index: Serve this index instead of loading ``settings.index``.
    """
    service = SearchService(settings or Settings(), index)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(service.load())
        yield
        loading.cancel()
        service.pool.close()

    app = FastAPI(title="searchqa search", lifespan=lifespan)
    app.state.service = service
    app.add_middleware(MeasureRequests, metrics=service.metrics, path="/retrieve")
    app.add_exception_handler(RequestFault, partial(_refuse, service.settings.retry_after_s))
    app.add_exception_handler(ClientDisconnect, _gone)
    _add_routes(app, service)
    return app


def _add_routes(app: FastAPI, service: SearchService) -> None:
    @app.post(
        "/retrieve",
        response_model=RetrieveAnswer,
        responses=_FAULTS,
        openapi_extra=RETRIEVE_OPENAPI,
    )
    async def retrieve(request: Request) -> Response:
        """Search; one list per query, in order."""
        found, fingerprint = await service.retrieve(request)
        headers = {FINGERPRINT_HEADER: fingerprint}
        return Response(found.body, media_type=found.media_type, headers=headers)

    @app.get("/health")
    async def health() -> dict[str, str]:
        """The process lives."""
        return {"status": "ok"}

    @app.get("/ready", responses={503: {"model": Fault}})
    async def ready() -> Readiness:
        """The index is loaded and answers."""
        index = service.index
        tokenizer = dict(index.manifest.tokenizer) if isinstance(index, BM25Index) else None
        return Readiness(
            status="ready",
            fingerprint=index.fingerprint,
            size=index.size,
            tokenizer=tokenizer,
        )

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        """Prometheus text."""
        return Response(service.metrics.render(), media_type=MEDIA_TYPE)


async def _refuse(retry_after_s: int, request: Request, fault: Exception) -> Response:
    assert isinstance(fault, RequestFault)
    headers = {"Retry-After": str(retry_after_s)} if fault.retry else {}
    return JSONResponse(
        {"detail": well_formed(str(fault))}, status_code=fault.status, headers=headers
    )


async def _gone(request: Request, fault: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it; a reset client is no fault of ours
