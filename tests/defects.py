"""The defects of examples/defects: what their comments say is wrong and where, and watched runs of their kernels."""

from __future__ import annotations

import ast
import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from noyau.kernels.programs.generate import specialization_of
from noyau.ops.op import Op
from noyau.sanitizer.records import WatchedRun
from noyau.sanitizer.routes import KernelCase, watch
from noyau.signatures.instances import bind

FOLDER = Path(__file__).parents[1] / "examples" / "defects"
_MARK = re.compile(r"(?:#|//) (defect: ([\w-]+)|other)\b")


@dataclass(frozen=True)
class Marked:
    """What a kernel's comments say: the kind and the line of its defect, and the other line."""

    kind: str
    line: int
    other: int | None


@cache
def module_of(name: str) -> ModuleType:
    """The file of examples/defects of this name, loaded."""
    spec = importlib.util.spec_from_file_location(f"defects_{name}", FOLDER / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def ops_of(module: ModuleType) -> list[Op[..., Any]]:
    return [each for each in vars(module).values() if isinstance(each, Op)]


def kernels_of(module: ModuleType) -> list[tuple[Op[..., Any], Any]]:
    """Each op with each of its kernels."""
    return [(op, kernel) for op in ops_of(module) for kernel in op.kernels.values()]


def marks_of(name: str) -> dict[str, Marked]:
    """What the comments of a file say of each kernel that ends in _broken."""
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    lines, found = text.splitlines(), {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_broken"):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            marks = {}
            for number in range(first, node.end_lineno + 1):
                match = _MARK.search(lines[number - 1])
                if match:
                    marks[match[2] or "other"] = number
            other = marks.pop("other", None)
            ((kind, line),) = marks.items()
            found[node.name] = Marked(kind, line, other)
    return found


def watch_on(op: Op[..., Any], kernel: Any, *arrays: np.ndarray) -> WatchedRun:
    """A watched run of a kernel of an op on these arrays."""
    bound = bind(op.signature, arrays, {}, op.name)
    size = ", ".join(f"{name} = {value}" for name, value in bound.sizes.items())
    return watch(KernelCase(kernel, specialization_of(op.signature, bound, {}).instance, bound.arrays, {}, size))
