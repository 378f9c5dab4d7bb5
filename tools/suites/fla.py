"""The kernels of flash-linear-attention in Triton, forward and backward: `python -m tools.suites.fla CHECKOUT`; they
are taken for right.

A case is a function in `programs/fla_function.py`, a script."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tools.suites.driver import Case, main

_SCRIPT = Path(__file__).with_name("programs") / "fla_function.py"


def cases_of(checkout: Path) -> list[Case]:
    """The functions of a checkout, of which older ones lack some."""
    functions = re.findall(r'^    "(\w+)": \("([\w.]+)"', _SCRIPT.read_text("utf-8"), re.MULTILINE)
    folder = checkout / "fla"
    names = [name for name, module in functions if any(folder.glob(f"{module.replace('.', '/')}*"))]
    return [Case(name, (_SCRIPT.name, str(checkout), name), _SCRIPT.parent, False) for name in names]


if __name__ == "__main__":
    sys.exit(main("flash-linear-attention", cases_of))
