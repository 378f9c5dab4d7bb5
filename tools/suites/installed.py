"""Tests of an installed package as cases of a suite, each a program under `noyau check`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from pathlib import Path

from tools.suites.driver import RACES, Case

PROGRAM = Path(__file__).with_name("programs") / "installed_test.py"


def folder_of(package: str) -> Path:
    """The folder of a package, or of one within it; nothing of it is imported but what it lies in."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} is not installed")
    return Path(spec.origin).parent


def cases_of(module: str, path: Path, defective: Collection[str] = (), begin: str = "Test") -> Iterator[Case]:
    """The tests in the file of a module, of the classes whose names begin so. `defective`: those that are wrong."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if not isinstance(node, ast.ClassDef) or not node.name.startswith(begin):
            continue
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and each.name.startswith("test"):
                words = str(PROGRAM), f"{module}.{node.name}.{each.name}"
                yield Case(f"{node.name}.{each.name}", words, PROGRAM.parent, each.name in defective, RACES)
