"""Triton's own tutorials: `python -m tools.suites.triton_tutorials CHECKOUT`; all of them are right but
02 in releases that time it in a stream of its own. Of what they time the first size runs, of a tuner's configurations
a few."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.suites.driver import Case, main

PROGRAM = Path(__file__).with_name("programs") / "triton_tutorial.py"
RACES = ("02-fused-softmax",)  # its benchmark makes the input in one stream and reads it in a new one, unordered
SHORT = ("06-fused-attention", "08-grouped-gemm", "09-persistent-matmul")  # run by it, on small tensors


def cases_of(checkout: Path) -> list[Case]:
    """The tutorials of a checkout of Triton, by number; those of Gluon, which nothing interprets, are left out."""
    folder = checkout / "python" / "tutorials"
    paths = sorted(folder.glob("[0-9]*.py"))
    short = {path: (str(PROGRAM), str(path)) for path in paths if path.stem in SHORT}
    races = {path for path in paths if path.stem in RACES and "set_stream(" in path.read_text("utf-8")}
    return [Case(path.stem, short.get(path, (path.name,)), folder, path in races) for path in paths]


if __name__ == "__main__":
    sys.exit(main("Triton's tutorials", cases_of))
