"""Of thousands of random changes to correct kernels, how many does `noyau check` find, and whom does it accuse?

`python benchmarks/random_mutants.py [--count N] [--seed S] [--processes P] [--seconds T] [--log LOG] [-o FILE]` (from
the root; needs numba, triton, torch, gcc and the extra check-c; another run with the same log goes on). A mutant is a
correct kernel of the tests or of examples/defects with one or two random changes: another operator or comparison, a
constant that is one off, a statement, a mask, a barrier or an atomic that is dropped, another variable, an index that
is one off. Whether it is wrong is decided apart from `noyau check`: it is run and watched at `SHAPES` random sizes, its
outputs are compared with the reference's, and what touches memory otherwise than it may counts too. The check then sees
the mutant as a user's file. Counted are the wrong ones that it finds and the others that it accuses; both lists are
printed, so that each can be read. What is not built, or raises whatever it is given, is no mutant.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.util
import json
import os
import random
import re
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TRITON_INTERPRET", "1")  # read as Triton is imported

# ruff: noqa: E402
import numpy as np
from record import write as write_record

import noyau
from noyau.errors import BuildError, NoyauError, UnsupportedError
from noyau.kernels.user_kernel import Usage, UserKernel
from noyau.ops.op import Op
from noyau.timing.machine import this_machine
from noyau.verify.checks import KernelCheck, OpCheck
from noyau.workers.resources import wait_factor
from tests.defects import watch_on

RESULTS = Path(__file__).parent / "results" / "random_mutants.json"
SHAPES, BUDGET_S, PATIENCE_S, GROUP = 12, 1.25, 8.0, 8
LOOKS_S, CLOCK_TIMES = 0.2, 40
SIZES = (1, 2, 3, 5, 8, 13, 16, 17, 31, 32, 33, 37, 63, 64, 65, 100, 127, 128, 129, 150, 200, 257, 300, 513)
CELLS = 1 << 15  # of the arrays of one run, together
LOOSE = 1e-3  # relative to the largest cell: a right kernel in float32 stays far below

PYTHON_FILES = (
    "tests/sanitizer/triton/tutorials.py",
    "tests/sanitizer/triton/tutorials_atomics.py",
    "examples/defects/triton_kernels.py",
    "examples/defects/numba_cuda_kernels.py",
    "examples/defects/prange.py",
)
C_FILES = ("openmp", "cuda_cpp", "threads")
DEFECT = re.compile(r"defect: |_broken")
OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
OTHER |= {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "+=": "-=", "-=": "+="}


@dataclass(frozen=True)
class Origin:
    """A correct kernel: of which file and op, its name there, and its text: a function."""

    file: str
    op: str
    kernel: str
    text: str


@dataclass(frozen=True)
class Mutant:
    """A changed kernel: the changes in words, and its text, in which it has the name of its origin."""

    origin: Origin
    change: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: how it is `wrong`, where it is, and what the check says: right, unverified or kinds."""

    origin: str
    change: str
    language: str = ""
    wrong: str = ""
    check: str = ""
    left_out: str = ""
    group: int = -1


# Changes of Python: each gives the places in a function where it can be made, as functions that make it in a copy.

Change = tuple[str, Callable[[ast.AST], ast.AST | None]]


def changes_of(node: ast.AST, names: list[str], rng: random.Random) -> Iterator[Change]:
    """What can become of a node, in words and as a function of its copy."""
    match node:
        case ast.Compare(ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE() | ast.Eq() | ast.NotEq() as op]):
            others = [
                each for each in (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq) if not isinstance(op, each)
            ]
            other = rng.choice(others)
            yield f"{type(op).__name__} becomes {other.__name__}", lambda n: _with(n, ops=[other()])
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.FloorDiv() | ast.Mod() as op):
            others = [each for each in (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv) if not isinstance(op, each)]
            other = rng.choice(others)
            yield f"{type(op).__name__} becomes {other.__name__}", lambda n: _with(n, op=other())
            yield "an operand is dropped", lambda n: n.left
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            yield "half of a condition is dropped", lambda n: rng.choice((n.left, n.right))
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            step = rng.choice((1, -1))
            yield f"{value} becomes {value + step}", lambda n: ast.Constant(value + step)
        case ast.Subscript(slice=index, ctx=ast.Load() | ast.Store()) if not isinstance(index, ast.Slice):
            if not isinstance(index, ast.Tuple) and not isinstance(index, ast.Constant):
                one_off = ast.BinOp(copy.deepcopy(index), ast.Add(), ast.Constant(1))
                yield "an index is one off", lambda n: _with(n, slice=one_off)
            elif isinstance(index, ast.Tuple) and len(index.elts) > 1:
                turned = ast.Tuple([copy.deepcopy(each) for each in reversed(index.elts)], ast.Load())
                yield "indices are exchanged", lambda n: _with(n, slice=turned)
        case ast.Call(func=ast.Attribute(attr=name)) if name in {"load", "store"} and node.keywords:
            kept = [each for each in node.keywords if each.arg not in {"mask", "other"}]
            if len(kept) < len(node.keywords):
                yield "a mask is dropped", lambda n: _with(n, keywords=kept)
        case ast.Call(func=ast.Attribute(attr="max" | "min" | "maximum" | "minimum" as name)):
            other_name = (
                name.translate(str.maketrans("", "")).replace("max", "?").replace("min", "max").replace("?", "min")
            )
            yield f"{name} becomes {other_name}", lambda n: _with(n, func=_with(n.func, attr=other_name))
        case ast.Name(id=name, ctx=ast.Load()) if name in names and len(names) > 1:
            other_name = rng.choice([each for each in names if each != name])
            yield f"{name} becomes {other_name}", lambda n: _with(n, id=other_name)
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Assign(targets=[ast.Subscript()]):
            yield f"dropped: {ast.unparse(node)[:50]}", lambda n: ast.Pass()
        case ast.If():
            yield "a condition is dropped", lambda n: _with(n, test=ast.Constant(True))


def _with(node: Any, **fields: Any) -> Any:
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, by: Callable[[ast.AST], ast.AST | None]) -> None:
        self.target, self.by = target, by

    def visit(self, node: ast.AST) -> Any:
        return self.by(node) if node is self.target else self.generic_visit(node)


def change_python(text: str, rng: random.Random) -> tuple[str, str] | None:
    """A function with one random change in its body, and the change in words."""
    made = ast.parse(text).body[0]
    body = [node for statement in made.body for node in ast.walk(statement)]
    stored = {node.id for node in body if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    callee = {id(node.func) for node in body if isinstance(node, ast.Call)}
    names = sorted(stored | {each.arg for each in made.args.args})
    places = [(node, each) for node in body if id(node) not in callee for each in changes_of(node, names, rng)]
    if not places:
        return None
    node, (words, by) = rng.choice(places)
    line = getattr(node, "lineno", 0)
    _Replace(node, by).visit(made)
    return f"line {line}: {words}", ast.unparse(ast.fix_missing_locations(made))


@cache
def python_origins(file: str) -> tuple[Origin, ...]:
    """Each kernel of a file that has no mark of a defect."""
    text = (ROOT / file).read_text("utf-8")
    lines, origins = text.splitlines(), []
    for node in ast.parse(text).body:
        if _is_kernel(node):
            own = "\n".join(lines[node.decorator_list[0].lineno - 1 : node.end_lineno])
            if not DEFECT.search(own):
                first = node.decorator_list[0]
                call = first.func if isinstance(first, ast.Call) else first
                origins.append(Origin(file, ast.unparse(call.value), node.name, ast.unparse(node)))
    return tuple(origins)


def _is_kernel(node: ast.stmt) -> bool:
    first = node.decorator_list[0] if isinstance(node, ast.FunctionDef) and node.decorator_list else None
    call = first.func if isinstance(first, ast.Call) else first
    return isinstance(call, ast.Attribute) and call.attr == "kernel"


# Changes of C: each is a pattern, and what becomes of a match. Operators of two operands stand between spaces there.

_WHOLE = r"\b(?:int|long|size_t|unsigned) "
_C_CHANGES: tuple[tuple[str, Callable[[str, random.Random], str]], ...] = (
    (r"__sync(?:threads|warp)\(\);|__threadfence\(\);", lambda text, rng: ";"),
    (r"#pragma omp (?:barrier|atomic|taskwait|critical.*)", lambda text, rng: ""),
    (r"(?<= )(?:<|<=|>|>=|==|!=|[-+*/%]|[-+]=)(?= )", lambda text, rng: OTHER[text]),
    (r"\b\d+\b(?![.\w])", lambda text, rng: str(int(text) + rng.choice((1, -1)))),
    (r"(?<=    )[^\s#{}()][^{}#()\n]* [-+]?= [^{}#\n]*;$", lambda text, rng: ";"),
    (r"if \((?:[^()]|\([^()]*\))*\)", lambda text, rng: "if (1)"),
)


def c_function(text: str, name: str) -> re.Match[str] | None:
    return re.search(rf"^[^\s#/}}].*?\b{name}\([^;{{]*\)\s*\{{\n(?:.*\n)*?\}}$", text, re.MULTILINE)


def change_c(body: str, rng: random.Random) -> tuple[str, str] | None:
    """A function with one random change, and the change in words."""
    names = sorted({match[1] for match in re.finditer(rf"{_WHOLE}(?:\w+ = [^;,]*, )?(\w+)", body)})
    another = (rf"\b(?:{'|'.join(names)})\b(?! [*=]*=? ?\w*;?$)", lambda text, rng: rng.choice(names))
    places = [
        (match.start(), match.end(), by(match[0], rng))
        for pattern, by in (*_C_CHANGES, *([another] if len(names) > 1 else []))
        for match in re.finditer(pattern, body, re.MULTILINE)
        if match.start() > body.index("{") and "//" not in body[body.rfind("\n", 0, match.start()) : match.start()]
    ]
    places = [each for each in places if body[each[0] : each[1]] != each[2]]
    if not places:
        return None
    first, last, by = rng.choice(places)
    line = body.count("\n", 0, first) + 1
    return f"line {line}: {body[first:last]} becomes {by or 'nothing'}", body[:first] + by + body[last:]


@cache
def c_origins(name: str) -> tuple[Origin, ...]:
    """Each kernel of a file of examples/defects in C that is mended."""
    file = f"examples/defects/{name}.py"
    module = load(ROOT / file)
    text = _c_file(file).read_text("utf-8")
    ops = {each.name: value for value, op in vars(module).items() if isinstance(op, Op) for each in op.kernels.values()}
    functions = [(value, name, c_function(text, name)) for name, value in ops.items() if name.endswith("_mended")]
    return tuple(Origin(file, value, name, match[0]) for value, name, match in functions if match is not None)


def _c_file(file: str) -> Path:
    place = ROOT / file
    return next(place.with_suffix(each) for each in (".c", ".cu", ".cpp") if place.with_suffix(each).is_file())


def mutant_of(origin: Origin, rng: random.Random) -> Mutant | None:
    """A kernel with one random change, or with two; None where there is no place for one."""
    change = change_c if Path(origin.file).stem in C_FILES else change_python
    text, words = origin.text, []
    for _ in range(1 + (rng.random() < 0.25)):
        changed = change(text, rng)
        if changed is None:
            return None
        words.append(changed[0])
        text = changed[1]
    return Mutant(origin, "; ".join(words), text)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"mutants_{path.stem}_{abs(hash(path))}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def op_of(group: list[Mutant], folder: Path) -> Op[..., Any]:
    """The op of some mutants of one kernel, with these alone, from a file of their own; their names end in numbers."""
    origin = group[0].origin
    place = folder / Path(origin.file).name
    if place.stem not in C_FILES:
        tree = ast.parse((ROOT / origin.file).read_text("utf-8"))
        tree.body = [each for each in tree.body if not _is_kernel(each)]
        for number, each in enumerate(group):
            function = ast.parse(each.text).body[0]
            function.name = f"{origin.kernel}_{number}"
            tree.body.append(function)
        place.write_text(ast.unparse(tree) + "\n", encoding="utf-8")
        return getattr(load(place), origin.op)
    original = _c_file(origin.file)
    whole = original.read_text("utf-8")
    (folder / original.name).write_text(whole, encoding="utf-8")
    place.write_text((ROOT / origin.file).read_text("utf-8"), encoding="utf-8")
    op = getattr(load(place), origin.op)
    first = op.kernels[origin.kernel]
    usage = {each.name: getattr(first.usage, each.name) for each in fields(Usage)}
    usage = {name: value for name, value in usage.items() if value not in (None, {}, (), False)}
    op.describe(replace(op.description, kernels=()))
    for number, each in enumerate(group):
        file = folder / f"{place.stem}_{number}{original.suffix}"
        file.write_text(whole.replace(origin.text, each.text), encoding="utf-8")
        op.kernel(str(file), entry=origin.kernel, name=f"{origin.kernel}_{number}", **usage)
    return op


# The truth, apart from the check.


def truth(op: Op[..., Any], kernel: UserKernel, seed: int) -> str:
    """How a kernel is wrong at random sizes; empty where nothing shows. StillBorn for one that never runs."""
    rng = random.Random(seed)
    for number in range(SHAPES):
        arrays = arrays_of(op, rng, number)
        if arrays is None:
            continue
        with np.errstate(all="ignore"):
            want = op.reference(*[each.copy() for each in arrays])
        shapes = ", ".join(str(each.shape) for each in arrays)
        try:
            run = watch_on(op, kernel, *[each.copy() for each in arrays])
        except (BuildError, UnsupportedError) as error:
            raise StillBorn(str(error)) from error
        except NoyauError as error:
            if number == 0:
                raise StillBorn(str(error)) from error
            return f"{type(error).__name__} at {shapes}: {error}"
        errors = [each for each in run.findings if each.severity == "error"]
        if errors:
            return f"{errors[0].kind} at {shapes}"
        for got, right in zip(run.outputs, want if isinstance(want, tuple) else (want,), strict=True):
            right = np.asarray(right)
            most = float(np.max(np.abs(right), initial=0, where=np.isfinite(right)))
            with np.errstate(all="ignore"):
                if not np.allclose(got, right, rtol=LOOSE, atol=LOOSE * max(most, 1e-6), equal_nan=True):
                    return f"values at {shapes}"
    return ""


def truth_or_reason(op: Op[..., Any], kernel: UserKernel, seed: int) -> Iterator[tuple[bool, str]]:
    try:
        yield True, truth(op, kernel, seed)
    except StillBorn as error:
        yield False, f"still-born: {error}"


class StillBorn(Exception):
    """A mutant that is not built, or raises whatever it is given: nobody would hand it in."""


def arrays_of(op: Op[..., Any], rng: random.Random, number: int) -> tuple[np.ndarray, ...] | None:
    """Inputs at random sizes that the reference takes; None where it refuses them."""
    assert op.signature is not None
    names = op.inputs.sizes if op.inputs is not None and hasattr(op.inputs, "sizes") else op.signature.sizes
    for most in (513, 300, 129, 65, 33, 17):
        sizes = {name: rng.choice([each for each in SIZES if each <= most]) for name in names}
        if number < 3:  # the op's own, then the least: a guard may be wrong at one cell alone
            sizes = dict.fromkeys(names, number) if number else {}
        try:
            arrays = tuple(np.asarray(each) for each in op.make(number, **sizes))
            if sum(each.size for each in arrays) <= CELLS:
                with np.errstate(all="ignore"):
                    op.reference(*[each.copy() for each in arrays])
                return arrays
        except Exception:  # noqa: BLE001  a reference refuses what it is not written for in its own way
            continue
    return None


# A process of its own for what may crash, hang, or take all memory.


def apart(work: Callable[[], Iterator[Any]], patience_s: float) -> list[Any]:
    """The JSON values of a generator that runs in a copy of this process, until it ends or its time does: so many
    seconds of the processor, or `CLOCK_TIMES` as many on the clock, for what sleeps."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reader)
        devnull = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(devnull, stream)
        try:
            with os.fdopen(writer, "w") as pipe:
                for each in work():
                    pipe.write(json.dumps(each) + "\n")
                    pipe.flush()
        finally:
            os._exit(0)  # whatever it raised: what stands around the copy is the parent's
    os.close(writer)
    text, end_s = b"", time.monotonic() + CLOCK_TIMES * patience_s
    while session_s(child) < patience_s and time.monotonic() < end_s:
        if not select.select([reader], [], [], LOOKS_S)[0]:
            continue
        piece = os.read(reader, 1 << 16)
        if not piece:
            break
        text += piece
    os.close(reader)
    _kill(child)  # and what it has begun
    os.waitpid(child, 0)
    return [json.loads(line) for line in text.decode().splitlines() if line.endswith(("}", "]"))]


def session_s(leader: int) -> float:
    """The seconds of the processor that the processes of a session have had, and those that they waited for."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it may have ended
            words = file.read_text("utf-8", "replace").rpartition(")")[2].split()
            ticks += sum(map(int, words[11:15])) if int(words[3]) == leader else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def _kill(child: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def judge(group: list[Mutant], seed: int) -> list[Verdict]:
    with tempfile.TemporaryDirectory() as folder:
        seconds = (2 * PATIENCE_S + BUDGET_S + 1) * len(group) + 60
        given = apart(lambda: map(asdict, judge_here(group, seed, Path(folder))), seconds)
    verdicts = [Verdict(**each) for each in given]
    rest = [Verdict(_named(each), each.change, left_out="no answer in time") for each in group[len(verdicts) :]]
    return verdicts + rest


def _named(mutant: Mutant) -> str:
    return f"{Path(mutant.origin.file).stem}.{mutant.origin.kernel}"


def judge_here(group: list[Mutant], seed: int, folder: Path) -> Iterator[Verdict]:
    try:
        op = op_of(group, folder)
    except Exception as error:  # noqa: BLE001  what does not load is no mutant
        for each in group:
            yield Verdict(_named(each), each.change, left_out=f"not loaded: {type(error).__name__}: {error}")
        return
    kernels, wrong, still = op.kernels, {}, {}
    if any(kernel.language == "triton" for kernel in kernels.values()):
        importlib.import_module("noyau.sanitizer.triton.run")  # once, and not in each of the copies
    for name, kernel in kernels.items():
        given = apart(partial(truth_or_reason, op, kernel, seed), PATIENCE_S)
        is_born, words = given[0] if given else (True, "it does not end, or takes its process with it")
        (wrong if is_born else still)[name] = words
    born = [mutant for mutant, name in zip(group, kernels, strict=True) if name in wrong]
    try:
        # From a file of their own: where the op is found again, its kernels run in other processes.
        op = op_of(born, Path(tempfile.mkdtemp(dir=folder))) if born else op
        check = check_of(op) if born else None
    except NoyauError as error:
        for mutant, kernel in zip(group, kernels.values(), strict=True):
            yield Verdict(_named(mutant), mutant.change, kernel.language, left_out=f"{type(error).__name__}: {error}")
        return
    said = dict(zip(wrong, map(said_of, check.kernels), strict=True)) if check is not None else {}
    for mutant, (name, kernel) in zip(group, kernels.items(), strict=True):
        words = wrong.get(name, ""), said.get(name, ""), still.get(name, "")
        yield Verdict(_named(mutant), mutant.change, kernel.language, *words)


def check_of(op: Op[..., Any]) -> OpCheck:
    """What a user is told of an op; its limits on the clock are longer where others compute."""
    return noyau.check(op, generated=False, budget_s=BUDGET_S, patience_s=PATIENCE_S * wait_factor())


def said_of(check: KernelCheck) -> str:
    kinds = sorted({str(each.kind) for each in check.findings if each.severity == "error"})
    return ",".join(kinds) or ("unverified" if check.unverified or check.skipped else "right")


def groups(count: int, seed: int) -> Iterator[list[Mutant]]:
    """Mutants of one kernel each, `GROUP` together, until there are as many as wanted."""
    rng = random.Random(seed)
    origins = [each for file in PYTHON_FILES for each in python_origins(file)]
    origins += [each for file in C_FILES for each in c_origins(file)]
    seen: set[tuple[str, str]] = set()
    while len(seen) < count:
        origin, group = rng.choice(origins), list[Mutant]()
        for _ in range(4 * GROUP):
            mutant = mutant_of(origin, rng)
            if mutant is not None and (_named(mutant), mutant.text) not in seen and len(group) < GROUP:
                seen.add((_named(mutant), mutant.text))
                group.append(mutant)
        if group:
            yield group


def _work(groups: list[tuple[int, list[Mutant]]], log: Path, end_s: float) -> NoReturn:
    """In a copy of this process, which has no threads: one group after the other, until the time is over."""
    try:
        for seed, group in groups:
            if time.monotonic() < end_s:
                lines = [json.dumps(asdict(each) | {"group": seed}) + "\n" for each in judge(group, seed)]
                with log.open("a") as file:
                    file.write("".join(lines))  # at once, as other processes write there too
    finally:
        os._exit(0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e9, help="no mutant is begun after these")
    parser.add_argument("-o", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--log", type=Path, help="a JSON line a mutant; the groups there are not judged again")
    options = parser.parse_args()
    end_s = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as folder:
        log = options.log or Path(folder) / "log"
        log.touch()
        judged = {json.loads(line)["group"] for line in log.read_text().splitlines()}
        every = [each for each in enumerate(groups(options.count, options.seed)) if each[0] not in judged]
        parts = [every[number :: options.processes] for number in range(options.processes)]
        workers = [os.fork() or _work(part, log, end_s) for part in parts]
        for worker in workers:
            os.waitpid(worker, 0)
        lines = log.read_text().splitlines()
    verdicts = [Verdict(**json.loads(line)) for line in lines]
    rows = summary(verdicts)
    write_record({"machine": asdict(this_machine()), "seed": options.seed, "rows": rows}, options.o)
    return 0


def summary(verdicts: list[Verdict]) -> dict[str, Any]:
    rows = {}
    for language in [*sorted({each.language for each in verdicts if each.language}), "all"]:
        own = [each for each in verdicts if language in ("all", each.language)]
        judged = [each for each in own if not each.left_out]
        wrong = [each for each in judged if each.wrong]
        found = [each for each in wrong if each.check not in ("right", "unverified")]
        unverified = [each for each in wrong if each.check == "unverified"]
        others = [each for each in judged if not each.wrong]
        accused = [each for each in others if each.check not in ("right", "unverified")]
        rows[language] = {
            "made": len(own),
            "left_out": len(own) - len(judged),
            "wrong": len(wrong),
            "found": len(found),
            "unverified": len(unverified),
            "others": len(others),
            "accused": len(accused),
        }
        print(f"{language:<11} " + ", ".join(f"{value} {name}" for name, value in rows[language].items()))
    for title, chosen in (
        ("missed", [v for v in verdicts if v.wrong and v.check in ("right", "unverified")]),
        ("accused", [v for v in verdicts if not v.left_out and not v.wrong and v.check not in ("right", "unverified")]),
    ):
        for each in chosen[:60]:
            print(f"{title}: {each.origin}: {each.change} | {each.wrong or each.check}")
    print(Counter(each.left_out[:60] for each in verdicts if each.left_out).most_common(12))
    return rows


if __name__ == "__main__":
    sys.exit(main())
