"""The Triton puzzles with solutions: `python -m tools.suites.triton_puzzles CHECKOUT`, where CHECKOUT is a fork of
Triton-Puzzles-Lite whose `puzzles_ans.py`, or else `puzzles.py`, has them; all are taken for right."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tools.suites.driver import Case, main

_PROGRAM = Path(__file__).with_name("programs") / "triton_puzzle.py"


def cases_of(checkout: Path) -> list[Case]:
    """The puzzles of a checkout."""
    file = next((each for name in ("puzzles_ans", "puzzles") if (each := checkout / f"{name}.py").is_file()), None)
    numbers = [] if file is None else re.findall(r"^    if (\d+) in puzzles:", file.read_text("utf-8"), re.MULTILINE)
    return [Case(number, (_PROGRAM.name, str(file), number), _PROGRAM.parent, False) for number in numbers]


if __name__ == "__main__":
    sys.exit(main("Triton puzzles", cases_of))
