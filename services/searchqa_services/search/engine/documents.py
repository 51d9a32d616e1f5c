"""Documents, and the store that keeps millions of them on disk.

On disk a corpus is one canonical JSON object per line (its SHA-256 is the corpus's identity) and
an array of byte offsets. A document is read as a slice of a memory map: no seek and no shared
file position, so any number of threads may read at once. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import overload

import numpy as np

from searchqa_services.search.engine.layout import DOCUMENTS_FILE, OFFSETS_FILE

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Document:
    """One passage of a corpus."""

    id: str
    """Unique in its corpus."""
    title: str
    """Without quotes; may be empty."""
    text: str
    """Body, without the title."""
    verbatim: str | None = None
    """``contents`` as the corpus spelled it, where that differs from the form made of the parts."""

    @property
    def contents(self) -> str:
        """The form that clients read, as stored, or: the title in quotes, a newline, the body."""
        return quoted(self.title, self.text) if self.verbatim is None else self.verbatim


def quoted(title: str, text: str) -> str:
    """Return the ``contents`` of Search-R1 corpora: the title in quotes, a newline, the body."""
    return f'"{title}"\n{text}'


def well_formed(text: str) -> str:
    """Replace lone surrogates, which JSON can spell but UTF-8 cannot, by U+FFFD."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def clean(document: Document) -> Document:
    """Return the document with every string fit for UTF-8; usually itself."""
    verbatim = document.verbatim
    fit = Document(
        well_formed(document.id),
        well_formed(document.title),
        well_formed(document.text),
        None if verbatim is None else well_formed(verbatim),
    )
    return document if fit == document else fit


def to_line(document: Document) -> bytes:
    """Return the canonical line of a document, newline included."""
    fields = {"id": document.id, "title": document.title, "text": document.text}
    if document.verbatim is not None:
        fields["contents"] = document.verbatim
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def from_line(line: bytes) -> Document:
    """Read a canonical line back."""
    fields = json.loads(line)
    return Document(fields["id"], fields["title"], fields["text"], fields.get("contents"))


def corpus_digest(documents: Iterable[Document]) -> str:
    """Return the SHA-256 of the canonical lines: equal for equal corpora in equal order."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(to_line(document))
    return digest.hexdigest()


class DocumentWriter:
    """Writes the two files of a document store; the digest is complete after ``close``."""

    def __init__(self, folder: Path) -> None:
        """Open the files in an existing folder."""
        self._folder = folder
        self._file = (folder / DOCUMENTS_FILE).open("wb")
        self._offsets = array("q", [0])
        self._digest = hashlib.sha256()

    def add(self, document: Document) -> None:
        """Append one document."""
        line = to_line(document)
        self._file.write(line)
        self._digest.update(line)
        self._offsets.append(self._offsets[-1] + len(line))

    @property
    def digest(self) -> str:
        """SHA-256 of what was written so far."""
        return self._digest.hexdigest()

    def __enter__(self) -> DocumentWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        if error is None:
            np.save(self._folder / OFFSETS_FILE, np.asarray(self._offsets, dtype=np.int64))


class DiskDocuments(Sequence[Document]):
    """A memory-mapped document store: ``store[i]`` parses document i, from any thread."""

    def __init__(self, folder: Path) -> None:
        """Map the files that a ``DocumentWriter`` left in the folder."""
        with (folder / DOCUMENTS_FILE).open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        mapped = np.load(folder / OFFSETS_FILE, mmap_mode="r", allow_pickle=False)
        self._offsets = np.asarray(mapped)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, place: int) -> Document: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Document]: ...
    def __getitem__(self, place: int | slice) -> Document | Sequence[Document]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        return from_line(self.raw(place + len(self) if place < 0 else place))

    def raw(self, place: int) -> bytes:
        """Return the canonical line of document ``place`` (0 <= place < len)."""
        if not 0 <= place < len(self):
            raise IndexError(f"document {place} of {len(self)}")
        return self._bytes[int(self._offsets[place]) : int(self._offsets[place + 1])]
