"""What an index is made of, and the hash that stands for it.

A wrong index answers every query, just badly, so an index states its ingredients in
``manifest.json`` and loading compares each with this program and with the files. The fingerprint
covers what decides results, and is the same for an in-memory index and one built on disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from searchqa_services.search.engine import tokenizer
from searchqa_services.search.engine.errors import IndexMismatch, IndexMissing
from searchqa_services.search.engine.layout import MANIFEST_FILE, PARTS

FORMAT = 1
_DECISIVE = ("format", "corpus", "tokenizer", "bm25", "bm25s")
_REBUILD = "rebuild it with 'searchqa-search index build'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The ingredients of one index; everything but ``files`` decides results."""

    format: int
    """Version of the folder layout and of the kernel's arithmetic."""
    corpus: Mapping[str, Any]
    """``documents`` (count), ``empty`` (documents without a token) and ``sha256``."""
    tokenizer: Mapping[str, Any]
    """As ``tokenizer.describe`` gives it."""
    bm25: Mapping[str, Any]
    """``k1``, ``b`` and ``method``."""
    bm25s: str
    """Version of bm25s that computed the scores."""
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """``bytes`` and ``sha256`` of every file; empty for an index in memory."""

    @property
    def digests(self) -> dict[str, str]:
        """A short hash for each decisive part, so that a difference can be named."""
        return {name: _hash(getattr(self, name)) for name in _DECISIVE}

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits: equal for indexes that answer alike."""
        return _hash(self.digests)

    def to_json(self) -> str:
        """Return the text of ``manifest.json``."""
        body = asdict(self) | {"digests": self.digests, "fingerprint": self.fingerprint}
        return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def _hash(value: object) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of an index folder.

    Raises:
        IndexMissing: The folder holds no index.
        IndexMismatch: The manifest is damaged, was edited, or names a tokenizer or format that
            this program does not have; the message says which part differs.
    """
    path = folder / MANIFEST_FILE
    if not path.is_file():
        raise IndexMissing(
            f"{folder} holds no index ({MANIFEST_FILE} is missing);"
            " build one with 'searchqa-search index build CORPUS OUT'"
        )
    try:
        body = json.loads(path.read_bytes())
        claimed, fingerprint = dict(body.pop("digests")), body.pop("fingerprint")
        manifest = Manifest(**body)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise IndexMismatch(f"{path} is not an index manifest ({error}); {_REBUILD}") from error
    _check_format(folder, manifest)
    _check_tokenizer(folder, manifest)
    _check_digests(folder, manifest, claimed, fingerprint)
    _check_parts(folder, manifest)
    return manifest


def _check_format(folder: Path, manifest: Manifest) -> None:
    if manifest.format != FORMAT:
        raise IndexMismatch(
            f"index {folder} has format {manifest.format!r}, this program reads format {FORMAT};"
            f" {_REBUILD}"
        )


def _check_tokenizer(folder: Path, manifest: Manifest) -> None:
    built = dict(manifest.tokenizer)
    ours = tokenizer.describe(
        lowercase=built.get("lowercase") is not False,
        stopwords="en" if built.get("stopwords") == "en" else None,
    )
    for name in sorted(ours.keys() | built.keys()):
        if built.get(name) != ours.get(name):
            raise IndexMismatch(
                f"index {folder} was built by another tokenizer: its {name} is"
                f" {built.get(name)!r}, this program's is {ours.get(name)!r}; {_REBUILD}"
            )


def _check_digests(
    folder: Path, manifest: Manifest, claimed: Mapping[str, str], fingerprint: str
) -> None:
    actual = manifest.digests
    differing = [name for name in _DECISIVE if claimed.get(name) != actual[name]]
    if fingerprint != manifest.fingerprint:
        differing = differing or ["fingerprint"]
    if differing:
        raise IndexMismatch(
            f"{folder / MANIFEST_FILE} was changed after the build: {', '.join(differing)}"
            f" no longer matches the fingerprint; {_REBUILD}"
        )


def _check_parts(folder: Path, manifest: Manifest) -> None:
    """Refuse a manifest whose ``files`` were edited: a part it does not list is not checked."""
    files = manifest.files
    complete = isinstance(files, dict) and files.keys() == set(PARTS)
    if not complete or not all(_is_description(entry) for entry in files.values()):
        raise IndexMismatch(
            f"{folder / MANIFEST_FILE} must give bytes and sha256 of exactly {', '.join(PARTS)};"
            f" {_REBUILD}"
        )


def _is_description(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and type(entry.get("bytes")) is int
        and isinstance(entry.get("sha256"), str)
    )


def describe_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return size and SHA-256 of every file in the folder but the manifest."""
    names = sorted(path.name for path in folder.iterdir() if path.name != MANIFEST_FILE)
    return {
        name: {"bytes": _size(folder / name), "sha256": _digest(folder / name)} for name in names
    }


def check_files(folder: Path, manifest: Manifest, *, contents: bool = False) -> None:
    """Compare the files with the manifest: their sizes, and on request every byte.

    Raises:
        IndexMismatch: A file is missing, has another size, or (``contents``) other bytes.
    """
    for name, expected in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise IndexMismatch(f"index {folder} lacks its file {name}; {_REBUILD}")
        if _size(path) != expected["bytes"]:
            raise IndexMismatch(
                f"{path} has {_size(path)} bytes, its manifest says {expected['bytes']}; {_REBUILD}"
            )
        if contents and _digest(path) != expected["sha256"]:
            raise IndexMismatch(f"{path} was damaged: its SHA-256 differs; {_REBUILD}")


def _size(path: Path) -> int:
    return path.stat().st_size


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
