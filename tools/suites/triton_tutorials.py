"""Triton's own tutorials: `python -m tools.suites.triton_tutorials CHECKOUT`; all of them are right. Of what they
time the first size runs, of a tuner's configurations a few."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.suites.driver import Case, main


def cases_of(checkout: Path) -> list[Case]:
    """The tutorials of a checkout of Triton, by number; those of Gluon, which nothing interprets, are left out."""
    folder = checkout / "python" / "tutorials"
    return [Case(path.stem, (path.name,), folder, False) for path in sorted(folder.glob("[0-9]*.py"))]


if __name__ == "__main__":
    sys.exit(main("Triton's tutorials", cases_of))
