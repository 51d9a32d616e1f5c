"""Settings of the search service, from arguments or ``SEARCHQA_*`` environment variables."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from searchqa_services.search.schema import Limits


class Settings(BaseSettings):
    """Everything that can be set; each field is also ``SEARCHQA_<NAME>``."""

    model_config = SettingsConfigDict(env_prefix="SEARCHQA_", frozen=True, extra="ignore")

    index: Path | None = Field(default=None, description="Index folder to serve.")
    host: str = Field(
        default="127.0.0.1", description="Address to bind; the default is this machine only."
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port to bind; 0 takes a free one.")
    workers: int = Field(
        default=1,
        ge=1,
        description="Processes; they share the mapped index, each has its own metrics.",
    )
    threads: int = Field(
        default=2, ge=1, description="Requests searched at the same time, per process."
    )
    queue_size: int = Field(
        default=1024,
        ge=0,
        description="Requests that may wait for a thread; the next one gets 503.",
    )
    default_top_k: int = Field(
        default=3, ge=1, description="Hits per query where the request names none."
    )
    max_top_k: int = Field(
        default=1000,
        ge=1,
        description="Most hits per query, after a cut to the size of the corpus (422 above).",
    )
    max_hits: int = Field(
        default=100_000, ge=1, description="Most queries times topk in a request (422 above)."
    )
    max_queries: int = Field(
        default=8192, ge=1, description="Most queries per request (422 above)."
    )
    max_query_chars: int = Field(
        default=8192,
        ge=1,
        description="Longer queries are searched by their first so many characters.",
    )
    max_body_bytes: int = Field(default=16 * 2**20, ge=1, description="Longest body (413 above).")
    keep_alive_s: int = Field(
        default=120,
        ge=75,
        description="Idle seconds before a connection is closed; clients pool them.",
    )
    retry_after_s: int = Field(default=1, ge=1, description="Retry-After of a 503, seconds.")

    @property
    def limits(self) -> Limits:
        """What one request may ask for."""
        return Limits(
            default_top_k=self.default_top_k,
            max_top_k=self.max_top_k,
            max_hits=self.max_hits,
            max_queries=self.max_queries,
            max_query_chars=self.max_query_chars,
        )
