"""The exercises of GPU MODE's pmpp_v2 with the solutions filed as correct and as wrong; read from a checkout of its
reference kernels, of which nothing is kept here: their licence restricts their use.

Run: python -m tools.suites.pmpp CHECKOUT"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.suites.driver import Case, main

_LABELS = {"correct": False, "wrong": True}


def cases_of(checkout: Path) -> list[Case]:
    """Each solution of each exercise; that it is wrong is what its folder says."""
    folder = checkout / "problems" / "pmpp_v2"
    return [
        Case(
            f"{path.parents[2].name}/{path.parent.name}/{path.name}",
            (path.parents[2].name, "--solution", str(path.relative_to(folder))),
            folder,
            _LABELS[path.parent.name],
        )
        for path in sorted(folder.glob("*/solutions/*/*.py"))
        if path.parent.name in _LABELS
    ]


if __name__ == "__main__":
    sys.exit(main("pmpp_v2", cases_of))
