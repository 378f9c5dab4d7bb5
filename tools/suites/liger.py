"""Liger's kernels in Triton, forward and backward: `python -m tools.suites.liger CHECKOUT`; all of them are right.

A case is a function in `programs/liger_function.py`, a script."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tools.suites.driver import Case, main

_SCRIPT = Path(__file__).with_name("programs") / "liger_function.py"


def cases_of(checkout: Path) -> list[Case]:
    """The functions of a checkout, or of a folder that pip installed it to."""
    folder = checkout / "src" if (checkout / "src").is_dir() else checkout
    modules = re.findall(r'^    "(\w+)": \(\s*"([\w.]+)"', _SCRIPT.read_text("utf-8"), re.MULTILINE)
    ops = folder / "liger_kernel" / "ops"  # of which older releases lack some
    names = [name for name, module in modules if (ops / f"{module.replace('.', '/')}.py").is_file()]
    return [Case(name, (_SCRIPT.name, str(folder), name), _SCRIPT.parent, False) for name in names]


if __name__ == "__main__":
    sys.exit(main("Liger 0.8", cases_of))
