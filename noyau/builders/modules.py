"""Kernels in Python as files of the cache: Numba keeps what it compiles beside them, Triton reads them again."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from noyau.builders.cache import MODULES, digest, folder
from noyau.errors import OutputError

KEPT = 512  # modules on disk


def file_of(text: str, *made_for: str) -> Path:
    """A file that holds the text, in a folder of its own in the cache: another one for another version of who reads
    it. OutputError where it cannot be written."""
    home = folder() / MODULES / digest(text, *made_for)
    path = home / "kernel.py"
    if not path.exists() or path.read_text("ascii") != text:
        fresh = home / f"new-{os.getpid()}-{id(text)}"
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.write_text(text, "ascii")
            fresh.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink()
            told = f"the cache folder {home} cannot be written: {error.strerror}; make room there"
            raise OutputError(told) from error
        _shrink(home.parent, home)
    return path


def _shrink(home: Path, newest: Path) -> None:
    """Remove the modules that were made first, beyond those that are kept."""
    aged = sorted((path for path in home.iterdir() if path != newest), key=lambda path: path.lstat().st_mtime_ns)
    for path in aged[: max(0, len(aged) + 1 - KEPT)]:
        for file in [*path.glob("__pycache__/*"), *path.glob("*.py")]:
            file.unlink(missing_ok=True)
        for folder_left in (path / "__pycache__", path):
            with contextlib.suppress(OSError):  # there is none, or another process is faster
                folder_left.rmdir()
