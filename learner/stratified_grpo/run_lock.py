"""One process at a time in a run's folder.

The operating system drops the lock when the process ends, however it ends, so a killed run resumes
at once. The file itself stays.
"""

from __future__ import annotations

import errno
import os
import sys
import weakref
from pathlib import Path

from stratified_grpo.errors import ConfigError
from stratified_grpo.run_folder import LOCK

if sys.platform == "win32":
    import msvcrt

    def _claim(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _claim(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_HELD = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
_NO_LOCKS_HERE = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP)
"""File systems without locks, such as some network ones: runs go on unprotected there."""


class RunLock:
    """The exclusive right to write in a folder; held from `acquire` to `release`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._release: weakref.finalize[[int], RunLock] | None = None

    def acquire(self) -> None:
        """Make the folder if need be and lock it; nothing if it is held already.

        Raises:
            ConfigError: another process holds it, or the folder cannot be made or written in.
        """
        if self._release is not None:
            return
        new = [path for path in (self.folder, *self.folder.parents) if not os.path.exists(path)]
        try:  # the status is the package's own error
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            for path in filter(os.path.isdir, new):
                path.rmdir()
            raise ConfigError(
                f"cannot write in {self.folder} ({error.strerror}); give another --out"
            ) from error
        try:  # the status is whether the lock is ours
            _claim(descriptor)
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                os.close(descriptor)
                raise ConfigError(self._refusal(error)) from error
        self._release = weakref.finalize(self, os.close, descriptor)

    def release(self) -> None:
        """Let others in; nothing if it is not held."""
        if self._release is not None:
            self._release()
            self._release = None

    def _refusal(self, error: OSError) -> str:
        if error.errno in _HELD:
            return (
                f"another process is at work in {self.folder}; wait for it, or give another --out"
            )
        return f"cannot lock {self.folder} ({error.strerror}); give another --out"
