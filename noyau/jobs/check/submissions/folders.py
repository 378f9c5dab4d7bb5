"""Problems that are Python files: pairs of KernelBench, folders of GPU MODE, folders of BackendBench."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from noyau.errors import InputError
from noyau.jobs.check.submissions.problem import Problem, Submission, Tolerance, Trial

TASK, SUBMISSION = "task.yml", "submission.py"
_ENTRY_OF = {"kernelbench": "ModelNew", "gpu_mode": "custom_kernel"}
_CAPS = (32, 128)  # of the constants of a pair: its sizes are halved until they are below
_ITEM = re.compile(r"""["']?([A-Za-z_]\w*)["']?\s*:\s*("[^"]*"|'[^']*'|[^,}\s]+)""")
_OPERATOR = re.compile(r"(\w+?)__([A-Za-z]\w*)")
# Shapes of the tensors that an operator of torch takes, and the dtype of the first; its schema has the rest.
_TENSORS = (
    ((5, 7),), ((33, 65),), ((1025,),), ((5, 7), (7, 9)), ((16, 16),),
    ((2, 5, 7), (2, 7, 9)), ((2, 3, 8, 9), (4, 3, 3, 3)),
)  # fmt: skip


def is_pair(path: Path) -> bool:
    """Whether a file has a Model, a ModelNew and their inputs."""
    return {"Model", "ModelNew", "get_inputs"} <= _tops(path)


def is_model(path: Path) -> bool:
    """Whether a file is a problem of KernelBench: a Model and its inputs."""
    return {"Model", "get_inputs"} <= _tops(path)


def _tops(path: Path) -> set[str]:
    """The names of the functions and classes of a file."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return set()
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def read_file(path: Path, format_name: str) -> Submission:
    """A submission that is one file of Python. InputError where there is none."""
    text = _text(path)
    return Submission(path.stem, {path.name: text}, (path.name, _ENTRY_OF[format_name]))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def read_model(path: Path) -> Problem:
    """The problem of a file of KernelBench: first with its constants halved until they are small, then as it is."""
    text = _text(path)
    constants = {name: value for name, value in _constants(ast.parse(text)) if value > _CAPS[0]}
    tolerance = Tolerance(1e-2, 1e-2)
    trials: list[Trial] = []
    for cap in _CAPS:
        sizes = {name: _halved(value, cap) for name, value in constants.items()}
        if sizes != constants and all(sizes != each.arguments["constants"] for each in trials):
            trials.append(Trial(_label(sizes), {"constants": sizes}, _product(sizes), False, tolerance))
    trials.append(Trial(_label(constants), {"constants": {}}, _product(constants), True, tolerance))
    return Problem(path.stem, "kernelbench", {path.name: text}, path.name, tuple(trials))


def _constants(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The whole numbers that a file assigns to names."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int(number))):
                yield name, number
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.BinOp(ast.Constant(int(one)), ast.Mult(), ast.Constant(int(two)))
            ):
                yield name, one * two
            case _:
                pass


def _halved(value: int, cap: int) -> int:
    """A size below a cap, odd where it was odd."""
    size = value
    while size > cap:
        size //= 2
    return size + (size % 2 != value % 2)


def _label(sizes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items()) or "as it is"


def _product(sizes: Mapping[str, Any]) -> int:
    numbers = [each for name, each in sizes.items() if isinstance(each, int) and name != "seed"]
    return min(math.prod(each for each in numbers if each > 0), 1 << 62)


def read_task(folder: Path) -> Problem:
    """The problem of a folder of GPU MODE: its tests, then its benchmarks, the smallest first. InputError where it
    names files that are not there, or no test."""
    items = _sections(_text(folder / TASK))
    names = {
        str(each["name"]): str(each["source"]) for each in items.get("files", ()) if {"name", "source"} <= each.keys()
    }
    sources = {
        name: folder / source for name, source in names.items() if not source.startswith("@") and name != "eval.py"
    }
    above = folder.resolve().parent
    outside = next((each for each in sources.values() if not each.resolve().is_relative_to(above)), None)
    if outside is not None:
        raise InputError(f"{folder / TASK}: {outside} lies outside the folder of its problems")
    tests, benchmarks = (sorted(items.get(each, ()), key=_product) for each in ("tests", "benchmarks"))
    if not tests or "reference.py" not in sources:
        raise InputError(f"{folder / TASK} names no tests, or no reference.py among its files")
    trials = tuple(Trial(_label(each), each, _product(each)) for each in [*tests, *benchmarks])
    files = {name: _text(path) for name, path in sources.items()}
    return Problem(folder.name, "gpu_mode", files, "reference.py", trials)


def _sections(text: str) -> dict[str, list[dict[str, Any]]]:
    """The lists of flat records in a file of YAML, by the name of their section: all that a task needs of it."""
    sections: dict[str, list[dict[str, Any]]] = {}
    section = ""
    for line in text.splitlines():
        bare = line.partition(" #")[0].rstrip()
        if bare and bare[0] not in " #-":
            section = bare.partition(":")[0]
        if bare.lstrip().startswith("- "):
            sections.setdefault(section, []).append({})
        if section in sections and not bare.lstrip().startswith("#"):
            sections[section][-1].update((name, _scalar(value)) for name, value in _ITEM.findall(bare.lstrip("- ")))
    return sections


def _scalar(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "null": None}.get(text, text)


def read_submission(path: Path, problem: Problem) -> Submission:
    """A submission to a task, with the files of the task that it may import."""
    submission = read_file(path, problem.format)
    beside = {name: text for name, text in problem.files.items() if name != problem.entry}
    return Submission(submission.name, beside | {SUBMISSION: _text(path)}, (SUBMISSION, submission.entry[1]))


def operator_folders(folder: Path) -> list[Path]:
    """The folders of a tree of BackendBench that hold a kernel: itself, or those in it."""
    inside = sorted(each for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []
    return [each for each in (folder, *inside) if _implementation(each) is not None]


def _implementation(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob(f"{folder.name}_implementation*.py"))), None)


def read_operator(folder: Path) -> tuple[Problem, Submission]:
    """An operator of torch, on tensors that its schema takes, and the kernel for it."""
    path = _implementation(folder)
    assert path is not None
    match = _OPERATOR.fullmatch(folder.name)
    name = f"{match[1]}.{match[2]}" if match else f"{folder.name}.default"
    trials = [
        Trial(
            f"{dtype}{[*map(list, shapes)]}",
            {"shapes": shapes, "dtype": dtype},
            math.prod(shapes[0]),
            True,
            Tolerance(),
        )
        for shapes in _TENSORS
        for dtype in ("float32", "bfloat16", "int64")
    ]
    problem = Problem(name, "backendbench", {}, "", tuple(trials), {"operator": name})
    return problem, Submission(folder.name, {path.name: _text(path)}, (path.name, f"{folder.name}_kernel_impl"))
