"""TritonBench-G (thunlp), its 184 kernels with the calls that stand beside them: `python -m tools.suites.tritonbench
CHECKOUT`. The suite has no labels."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.suites.driver import Case, main


def cases_of(checkout: Path) -> list[Case]:
    """The scripts of a checkout, by name."""
    folder = checkout / "data" / "TritonBench_G_v1"
    return [Case(path.stem, (path.name,), folder, None) for path in sorted(folder.glob("*.py"))]


if __name__ == "__main__":
    sys.exit(main("TritonBench-G", cases_of))
