"""From command-line values to a running server: check first, so that mistakes end in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from searchqa_services.search.engine.errors import InvalidParameter
from searchqa_services.search.engine.fingerprint import check_files, read_manifest
from searchqa_services.search.serve import listen, serve
from searchqa_services.search.settings import Settings


def launch(given: Mapping[str, Any], announce: Callable[[str], None]) -> None:
    """Serve with the given settings; the environment supplies the others.

    Args:
        given: Settings by name.
        announce: Told once what is served where.

    Raises:
        InvalidParameter: A setting is out of range, or no index is named.
        IndexMissing: The index folder holds none.
        IndexMismatch: The index cannot be trusted.
    """
    settings = read_settings(given)
    if settings.index is None:
        raise InvalidParameter("name an index: --index PATH or SEARCHQA_INDEX=PATH")
    manifest = read_manifest(settings.index)
    check_files(settings.index, manifest)
    listener = listen(settings.host, settings.port)
    megabytes = sum(file["bytes"] for file in manifest.files.values()) / 1e6
    host, port = listener.getsockname()[:2]
    announce(
        f"serving {manifest.corpus['documents']:,} documents ({megabytes:.1f} MB, memory-mapped)"
        f" from {settings.index} at http://{f'[{host}]' if ':' in host else host}:{port}"
    )
    serve(settings, listener)


def read_settings(given: Mapping[str, Any]) -> Settings:
    """Return validated settings.

    Raises:
        InvalidParameter: A value is out of range; the message names it.
    """
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise InvalidParameter(f"{name}={first['input']!r}: {first['msg']}") from error
