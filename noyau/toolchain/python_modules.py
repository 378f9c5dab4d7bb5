"""Kernels in Python as files of the cache: Numba keeps what it compiles beside them, Triton reads them again."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from noyau.errors import OutputError
from noyau.toolchain.cache import MODULES, digest, folder

KEPT = 512  # modules on disk


def file_of(text: str, *made_for: str) -> Path:
    """A file that holds the text, in a folder of its own in the cache: another one for another version of who reads
    it. OutputError where it cannot be written."""
    home = folder() / MODULES / digest(text, *made_for)
    path = home / "kernel.py"
    if not _holds(path, text):
        fresh = home / f"new-{os.getpid()}-{id(text)}"
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.write_text(text, "ascii")
            fresh.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink()
            message = f"the cache folder {home} cannot be written: {error.strerror}; make room there"
            raise OutputError(message) from error
        _shrink(home.parent, home)
    return path


def _holds(path: Path, text: str) -> bool:
    """Whether a file is there that holds the text."""
    try:
        return path.read_text("ascii") == text
    except (OSError, ValueError):  # it never was, another process removes it, or it is damaged
        return False


def _shrink(home: Path, newest: Path) -> None:
    """Remove the modules that were made first, beyond those that are kept."""
    aged = sorted((path for path in home.iterdir() if path != newest), key=_made_ns)
    for path in aged[: max(0, len(aged) + 1 - KEPT)]:
        with contextlib.suppress(OSError):  # another process removes it, too
            for file in [*path.glob("__pycache__/*"), *path.glob("*.py")]:
                file.unlink(missing_ok=True)
        for folder_left in (path / "__pycache__", path):
            with contextlib.suppress(OSError):  # there is none, or another process is faster
                folder_left.rmdir()


def _made_ns(path: Path) -> int:
    """The time when a module was made; 0 where another process has removed it meanwhile."""
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return 0
