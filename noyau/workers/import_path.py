"""The search path of a Python file that runs: its folder comes first, as where Python itself runs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType


class _InstalledNamesake:
    """A finder of the installed package that bears the name of the file itself: `triton.py` may import triton."""

    def __init__(self, file: Path) -> None:
        self.name, self.folder = file.stem, str(file.parent)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.name or path is not None:
            return None
        return PathFinder.find_spec(name, [each for each in sys.path if each != self.folder])


@contextmanager
def import_path(file: Path) -> Iterator[None]:
    """Within, imports are looked for in the folder of `file` first; `file` itself hides no installed package."""
    absolute = file.absolute()
    finder, folder = _InstalledNamesake(absolute), str(absolute.parent)
    sys.path.insert(0, folder)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.path.remove(folder)
