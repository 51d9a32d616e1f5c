"""Corpus files in, documents out.

Reads JSONL, plain or gzip-compressed, in the two forms people have: ``{"id", "title", "text"}``
and the FlashRAG form ``{"id", "contents"}`` with contents ``"Title"`` newline body. Contents that
are spelled otherwise are split all the same, and kept as they are besides. Other keys are ignored;
an integer id becomes a string. Every complaint names the file and the line.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from searchqa_services.search.engine.documents import Document, clean, quoted
from searchqa_services.search.engine.errors import CorpusError

_GZIP_MAGIC = b"\x1f\x8b"


def read_corpus(path: str | Path) -> Iterator[tuple[int, Document]]:
    """Yield (line number from 1, document) for every line that is not blank.

    Ids are not compared here; whoever collects the documents does.

    Raises:
        CorpusError: The file cannot be read, or a line is not a document.
    """
    path = Path(path)
    if not path.is_file():
        raise CorpusError(f"there is no corpus file {path}")
    number = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, _document(line, f"{path} line {number}")
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{path} cannot be read after line {number}: {error}") from error


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        compressed = file.read(2) == _GZIP_MAGIC
    return cast(IO[bytes], gzip.open(path, "rb")) if compressed else path.open("rb")


def _document(line: bytes, where: str) -> Document:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise CorpusError(f'{where} must be an object such as {{"id": "1", "contents": "..."}}')
    title, text = _body(fields, where)
    contents = fields.get("contents")
    spelled = isinstance(contents, str) and contents != quoted(title, text)
    return clean(Document(_id(fields, where), title, text, contents if spelled else None))


def _id(fields: dict[str, Any], where: str) -> str:
    value = fields.get("id")
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise CorpusError(f"{where} needs an 'id' that is a non-empty string or an integer")
    return str(value)


def _body(fields: dict[str, Any], where: str) -> tuple[str, str]:
    if "text" in fields:
        return _string(fields, "title", where, default=""), _string(fields, "text", where)
    if "contents" in fields:
        return split_contents(_string(fields, "contents", where))
    raise CorpusError(f"{where} needs 'text' (with a 'title') or 'contents'")


def _string(fields: dict[str, Any], name: str, where: str, default: str | None = None) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise CorpusError(f"{where}: '{name}' must be a string, not {json.dumps(value)[:60]}")
    return value


def split_contents(contents: str) -> tuple[str, str]:
    """Split FlashRAG contents into title and text; contents of one line have no title."""
    title, newline, text = contents.partition("\n")
    if not newline:
        return "", contents
    title = title.removesuffix("\r")
    if len(title) >= 2 and title[0] == title[-1] == '"':
        title = title[1:-1]
    return title, text
