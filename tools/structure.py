"""The shape of the package: its layers, its import cycles, its sizes. `python tools/structure.py` prints them.

Exit status 0 where no import runs upwards, no files import each other in a circle, and no file or function is too long.
The other figures are goals; what is over its goal is marked.
An import counts wherever it stands: in the body of a module, in a function, under TYPE_CHECKING.
"""

from __future__ import annotations

import ast
import gc
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "noyau"

# From the ground up: a file imports of noyau what stands before it, or beside it in its own folder.
LAYERS = (
    "errors",
    "dtypes",
    "version",
    "text",
    "ir",
    "compiler",
    "workers",
    "toolchain",
    "functions",
    "frontends",
    "codegen",
    "verify",
    "timing",
    "signatures",
    "hosts",
    "kernels",
    "ops",
    "nn",
    "engines",
    "sanitizer",
    "jobs",
    "__init__",
    "__main__",
)
FACE = "__init__"  # noyau/__init__.py: the public names
MOST_LINES, MOST_FUNCTION_LINES, MEDIAN_LINES = 500, 40, 150
# The package had 89,479 lines when its rebuilding and what has come since were planned: all of that may add 15 %.
# It was rebuilt within 460 modules, and may have 15 % more of these.
MOST_MODULES, MOST_PACKAGE_LINES, MOST_SHARED_NAMES = 529, 102_900, 30


@dataclass(frozen=True, slots=True)
class Import:
    """One import of a file of the package by another: dotted names without `noyau.`, and where it stands."""

    source: str
    target: str
    line: int
    type_only: bool

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target}"


@cache
def modules(root: Path = ROOT) -> Mapping[str, ast.Module]:
    """The parsed files of the package by dotted name; a package stands for its `__init__.py`."""
    parsed = {}
    collects = gc.isenabled()
    gc.disable()  # of a million nodes none is garbage, and looking for it takes twice as long as parsing
    try:
        for path in sorted((root / PACKAGE).rglob("*.py")):
            parsed[name_of(path, root)] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    finally:
        if collects:
            gc.enable()
    return parsed


def name_of(path: Path, root: Path = ROOT) -> str:
    """The dotted name of a file of the package, without `noyau.`."""
    parts = list(path.relative_to(root / PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == FACE and len(parts) > 1 else parts)


def statements(tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """Every statement (and what holds some: handlers, cases), and whether only type checkers read it."""
    stack: list[tuple[ast.AST, bool]] = [(tree, False)]
    while stack:
        node, type_only = stack.pop()
        yield node, type_only
        guarded = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, ())
            if isinstance(inner, list):  # the body of a lambda or of a conditional is an expression
                stack += [(child, type_only or (guarded and field == "body")) for child in inner]


def imports(files: Mapping[str, ast.Module]) -> Iterator[Import]:
    """Every import of one file of the package by another."""
    for name, tree in files.items():
        for node, type_only in statements(tree):
            for target in _targets(node, files):
                if target != name:
                    yield Import(name, target, getattr(node, "lineno", 0), type_only)


def _targets(node: ast.AST, files: Mapping[str, ast.Module]) -> Iterator[str]:
    """The files that an import statement names. What a package gives beside modules is its own."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        return
    for name in names:
        if f"{name}.".startswith(f"{PACKAGE}."):
            inner = name.split(".")[1:]
            while inner and ".".join(inner) not in files:
                inner.pop()
            yield ".".join(inner) or FACE


def layer_of(name: str) -> int:
    """The place of a file in LAYERS. ValueError where its folder is not listed."""
    return LAYERS.index(name.split(".", maxsplit=1)[0])


def upward_imports(files: Mapping[str, ast.Module]) -> list[str]:
    """Imports of a layer by one that stands below it."""
    return [str(each) for each in imports(files) if layer_of(each.target) > layer_of(each.source)]


def cycles(files: Mapping[str, ast.Module]) -> list[list[str]]:
    """Sets of files that import each other in a circle (Tarjan's strongly connected components)."""
    graph: dict[str, set[str]] = {name: set() for name in files}
    for each in imports(files):
        if not each.type_only:
            graph[each.source].add(each.target)
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in graph[name]:
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            circle = stack[stack.index(name) :]
            del stack[len(stack) - len(circle) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    sys.setrecursionlimit(10_000)
    for name in graph:
        if name not in order:
            visit(name)
    return found


def shared_class_names(files: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """Names of classes that stand in several files, and these files."""
    places = defaultdict(set)
    for name, tree in files.items():
        for node, _ in statements(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(name)
    return {name: sorted(where) for name, where in sorted(places.items()) if len(where) > 1}


def function_lengths(files: Mapping[str, ast.Module]) -> dict[str, int]:
    """The lines of each function, by its file, line and name."""
    lengths = {}
    for name, tree in files.items():
        for node, _ in statements(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lengths[f"{name}:{node.lineno} {node.name}"] = (node.end_lineno or node.lineno) - node.lineno + 1
    return lengths


def line_counts(root: Path = ROOT) -> dict[str, int]:
    """The lines of each file of the package, by path."""
    return {
        path.relative_to(root).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in sorted((root / PACKAGE).rglob("*.py"))
    }


def main() -> int:
    """Print the figures and what breaks a rule."""
    files, counts = modules(), line_counts()
    upward, circles = upward_imports(files), cycles(files)
    shared, lengths = shared_class_names(files), function_lengths(files)
    bodies = {path: count for path, count in counts.items() if not path.endswith("__init__.py")}
    rules = (
        ("upward imports", len(upward), 0),
        ("cycles of files", len(circles), 0),
        ("lines of the largest module", max(counts.values()), MOST_LINES - 1),
        ("lines of the longest function", max(lengths.values()), MOST_FUNCTION_LINES),
    )
    goals = (
        ("modules", len(bodies), MOST_MODULES),
        ("lines of Python", sum(counts.values()), MOST_PACKAGE_LINES),
        ("median lines of a module", statistics.median(bodies.values()), MEDIAN_LINES),
        ("class names in several modules", len(shared), MOST_SHARED_NAMES - 1),
    )
    for name, value, limit in (*rules, *goals):
        print(f"{name:32} {value:8g}   limit {limit:g}{'   OVER' if value > limit else ''}")
    print(*upward, *(" <-> ".join(circle) for circle in circles), sep="\n", end="")
    return int(any(value > limit for _, value, limit in rules))


if __name__ == "__main__":
    sys.exit(main())
