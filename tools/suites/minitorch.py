"""The tasks of minitorch's Module 3, which a course has its students solve in Numba and Numba-CUDA:
`python -m tools.suites.minitorch CHECKOUT`, of a checkout with solutions, which are taken for right.

A case is a task in `programs/minitorch_task.py`, a script; one that is not solved is undecided."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.suites.driver import Case, main
from tools.suites.programs.minitorch_task import TASKS

_SCRIPT = Path(__file__).with_name("programs") / "minitorch_task.py"


def cases_of(checkout: Path) -> list[Case]:
    """The tasks of a checkout."""
    if not (checkout / "minitorch").is_dir():
        return []
    return [Case(task, (_SCRIPT.name, str(checkout), task), _SCRIPT.parent, False) for task in TASKS]


if __name__ == "__main__":
    sys.exit(main("minitorch's Module 3", cases_of))
