"""DataRaceBench (LLNL), its programs in C and C++: `python -m tools.suites.dataracebench CHECKOUT`.

A label is the end of a name: `-yes` has a data race, `-no` has none. Findings of other kinds do not count."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tools.suites.driver import RACES, Case, main

_POLYBENCH = (
    "-Ipolybench -Iutilities -DPOLYBENCH_NO_FLUSH_CACHE -DPOLYBENCH_TIME -D_POSIX_C_SOURCE=200112L "
    "utilities/polybench.c -lm"
)


def cases_of(checkout: Path) -> list[Case]:
    """The programs of a checkout, by number."""
    folder = checkout / "micro-benchmarks"
    cases = []
    for path in sorted(folder.glob("DRB*.c*")):
        label = re.search(r"-(yes|no)\.c(?:pp|c|xx)?$", path.name)
        if label is None:
            continue
        flags = f"{_POLYBENCH} -I." if "polybench" in path.read_text("utf-8", "replace") else "-lm"
        cases.append(Case(path.name, (path.name, "--time", "60", f"--flags={flags}"), folder, label[1] == "yes", RACES))
    return cases


if __name__ == "__main__":
    sys.exit(main("DataRaceBench 1.4, C and C++", cases_of))
