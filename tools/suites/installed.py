"""Tests of an installed package as cases of a suite, each a program under `noyau check`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from tools.suites.driver import Case

PROGRAM = Path(__file__).with_name("programs") / "installed_test.py"
LOADS = ("noyau.sanitizer.scripts.numba_cuda_hooks", "pytest", "unittest.mock")


def folder_of(package: str) -> Path:
    """The folder of a package, or of one within it; nothing of it is imported but what it lies in."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} is not installed")
    return Path(spec.origin).parent


def modules_in(package: str, folder: Path, parts: Sequence[str]) -> dict[str, Path]:
    """The files of tests in parts of a package's folder, by their modules."""
    paths = [path for part in parts for path in sorted((folder / part).glob("test_*.py"))]
    return {".".join((package, *path.relative_to(folder).with_suffix("").parts)): path for path in paths}


def cases_of(module: str, path: Path, defective: Collection[str] = (), word: str = "") -> Iterator[Case]:
    """The tests in the file of a module whose texts have a word. `defective`: those that are wrong."""
    text = path.read_text("utf-8")
    for node in ast.parse(text).body if word in text else ():
        for each in node.body if isinstance(node, ast.ClassDef) and "Test" in node.name else ():
            is_test = isinstance(each, ast.FunctionDef) and each.name.startswith("test")
            if is_test and word in "".join(ast.unparse(each)):
                name = f"{node.name}.{each.name}"
                words, is_defective = (str(PROGRAM), f"{module}.{name}"), each.name in defective
                yield Case(name, words, PROGRAM.parent, is_defective, loads=LOADS, may_be_empty=True)
