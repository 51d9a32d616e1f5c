"""Folders that are either complete or absent.

An index is written beside its destination, flushed to the disk and renamed, so neither an error
nor a kill leaves half an index under the name that people load. What a killed build left behind
is removed by the next build to the same destination.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from searchqa_services.search.engine.errors import IndexExists
from searchqa_services.search.engine.layout import MANIFEST_FILE


@contextmanager
def new_folder(out: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``out`` when the block ends without an error.

    One process at a time may build one destination.

    Raises:
        IndexExists: ``out`` exists and ``overwrite`` is false, or ``out`` is something else than
            an index.
    """
    out = Path(os.path.abspath(out))
    _check_destination(out, overwrite)
    out.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{out.name}.building-"
    for leftover in out.parent.glob(f"{glob.escape(prefix)}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
    try:
        yield partial
        _flush(partial)
        _check_destination(out, overwrite)  # again: somebody may have used the name meanwhile
        _move(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_destination(out: Path, overwrite: bool) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not _is_index(out):
        raise IndexExists(
            f"{out} exists and is not an index, or not only an index; choose another name"
        )
    if not overwrite:
        raise IndexExists(f"{out} exists; choose another name or pass --overwrite")


def _is_index(out: Path) -> bool:
    """Whether a folder is ours to replace: our manifest, and nothing that it does not list.

    Indexes of other formats count, since rebuilding is what a refused one is told to do.
    """
    try:  # the status of a manifest that cannot be read is that this is no index of ours
        manifest = json.loads((out / MANIFEST_FILE).read_bytes())
        ours = {MANIFEST_FILE, *dict(manifest["files"])}
        named = isinstance(manifest["fingerprint"], str) and "digests" in manifest
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return False
    return named and all(path.name in ours and path.is_file() for path in out.iterdir())


def _move(partial: Path, out: Path) -> None:
    partial.chmod(0o755)  # mkdtemp makes private folders, and servers run as other users
    if out.exists():
        # Named so that the next build removes it, should this one be killed here.
        discarded = partial.with_name(partial.name + "-old")
        out.rename(discarded)
        partial.rename(out)
        shutil.rmtree(discarded, ignore_errors=True)
    else:
        partial.rename(out)
    _flush_path(out.parent)


def _flush(folder: Path) -> None:
    for path in folder.iterdir():
        _flush_path(path)
    _flush_path(folder)


def _flush_path(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open a folder to flush it
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
