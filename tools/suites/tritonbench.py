"""TritonBench-G (thunlp), its 184 kernels with the calls that stand beside them: `python -m tools.suites.tritonbench
CHECKOUT`. The suite has no labels."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tools.suites.driver import Case, main

_PROGRAM = Path(__file__).with_name("programs") / "uncalled_tests.py"
_CALLS = re.compile(r"^ *(\w+ = )?test\w*\(", re.MULTILINE)


def cases_of(checkout: Path) -> list[Case]:
    """The scripts of a checkout, by name; of one that calls nothing its tests are called."""
    folder = checkout / "data" / "TritonBench_G_v1"
    paths = sorted(folder.glob("*.py"))
    return [Case(path.stem, _words(path), folder, None) for path in paths]


def _words(path: Path) -> tuple[str, ...]:
    return (path.name,) if _CALLS.search(path.read_text("utf-8")) else (str(_PROGRAM), path.name)


if __name__ == "__main__":
    sys.exit(main("TritonBench-G", cases_of))
