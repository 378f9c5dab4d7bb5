"""NumPy's own examples and random programs as ops: `python -m tools.suites.numpy`.

The examples are those of the docstrings of the functions that docs/numpy.md lists; an example is an expression, its
arrays are the inputs. A random program is a few lines of what arrays do, on inputs of random dtypes, shapes and
strides. Each is called as an op and by NumPy itself: right where value, dtype, shape and the type of an error are the
same (an op packs its results, gives several as a tuple, and one of no axes as a number); `as written` where the op said
that it runs as its reference. Exit status 0 where none is wrong."""

# ruff: noqa: S102, S307, S311, BLE001  it runs what NumPy's docstrings hold, and takes whatever that raises

from __future__ import annotations

import argparse
import ast
import doctest
import io
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import noyau
from noyau.errors import CheckError, NoyauError, UnansweredError
from noyau.ops.op import ReferenceWarning
from noyau.workers.worker import ForkedWorker
from tools import numpy_examples

Array = np.ndarray
_GROUPS = ("REDUCTIONS", "CHOICES", "SHAPES", "PRODUCTS", "CREATION")
_LISTED = [name for group in _GROUPS for name in getattr(numpy_examples, group) if not name.startswith("np.empty")]
_DTYPES = ("f4", "f4", "f8", "f8", "f2", "i4", "i8", "i2", "u1", "u4", "?")
_MAKERS = ("array", "arange", "asarray", "linspace", "eye", "ones", "zeros")
_STEPS = (
    "np.abs({0})", "-{0}", "{0} + 1", "{0} * 2.5", "{0} % 3", "{0} ** 2", "{0} / 4", "{0} // 3", "np.round({0})",
    "np.sqrt(np.abs({0}))", "np.exp(-np.abs({0}))", "np.where({0} > 1, {0}, 0)", "np.maximum({0}, 0.5)",
    "np.clip({0}, -1, 1)", "{0}.astype('f4')", "{0}.astype('i8')", "{0}.T", "{0}[::-1]", "{0}[..., ::2]",
    "{0}[..., -1:]", "{0}.reshape(-1)", "{0}[None]", "np.sum({0}, axis=-1)", "{0}.max(axis=0, initial=0)",
    "{0}.mean()", "{0}.sum()", "np.cumsum({0}, axis=-1)", "{0}.argmax()", "np.stack([{0}, {0}])", "np.roll({0}, 1)",
    "np.concatenate([{0}, {0}], axis=-1)", "{0} - {0}.mean(axis=-1, keepdims=True)", "np.diff({0}, axis=-1)",
    "np.pad({0}, 1)", "{0} @ {0}.T", "{0} == {0}.max()", "np.tanh({0}) + {1}", "{0} * {1}", "np.minimum({0}, {1})",
    "{0} - {1}", "np.outer({0}, {1})", "{0} < {1}",
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A function of some arrays, as text."""

    name: str
    text: str
    inputs: Mapping[str, Array]
    scope: Mapping[str, Any] = field(default_factory=dict)

    def function(self) -> Callable[..., Any]:
        scope = {"np": np, **self.scope}
        exec(compile(self.text, f"<{self.name}>", "exec"), scope)
        function: Callable[..., Any] = scope["program"]
        return function


# Examples of docstrings.


class _Inputs(ast.NodeTransformer):
    """Puts a name in the place of each array of an expression."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self.scope, self.inputs = scope, dict[str, Array]()

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Name | ast.List | ast.Call):
            value = self.value(node)
            if isinstance(value, Array) and value.dtype.kind in "fiub" and value.dtype.itemsize <= 8:
                name = next((name for name, each in self.inputs.items() if each is value), f"x{len(self.inputs)}")
                self.inputs[name] = value
                return ast.Name(name, ast.Load())
        return self.generic_visit(node)

    def value(self, node: ast.AST) -> Any:
        match node:
            case ast.Name(id=name):
                return self.scope.get(name)
            case ast.Call(func=ast.Attribute(attr=name)) if name in _MAKERS:
                return _evaluate(node, self.scope)
            case _:
                return None


def _evaluate(node: ast.AST, scope: Mapping[str, Any]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return eval(compile(ast.Expression(node), "<example>", "eval"), dict(scope))  # type: ignore[arg-type]
    except Exception:
        return None


def documented(only: str) -> Iterator[Program]:
    """The examples of the functions that are listed."""
    for name in _LISTED:
        function: Any = np
        for part in name.split(".")[1:]:
            function = getattr(function, part, None)
        scope: dict[str, Any] = {"np": np}
        for number, example in enumerate(doctest.DocTestParser().get_examples(getattr(function, "__doc__", "") or "")):
            if only and only != name:
                break
            program = _documented(f"{name} {number}", example.source, scope)
            if program is not None:
                yield program
            with suppress(Exception), warnings.catch_warnings(), redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                exec(example.source, scope)


def _documented(name: str, source: str, scope: Mapping[str, Any]) -> Program | None:
    """An example as a program; None where it is no expression of arrays by NumPy."""
    try:
        (statement,) = ast.parse(source).body
    except (SyntaxError, ValueError):
        return None
    value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    if not isinstance(value, ast.Call | ast.BinOp | ast.Subscript) or "np." not in source:
        return None
    inputs = _Inputs(scope)
    body = inputs.visit(value)
    if not inputs.inputs or isinstance(body, ast.Name):
        return None
    text = f"def program({', '.join(inputs.inputs)}):\n    return {ast.unparse(ast.fix_missing_locations(body))}\n"
    others = {key: each for key, each in scope.items() if not key.startswith("__")}
    return Program(name, text, inputs.inputs, others)


# Random programs.


def drawn(seed: int) -> Program:
    """A random program of a few lines."""
    rng = random.Random(seed)
    shape = tuple(rng.choice((0, 1, 2, 3, 4, 5, 17)) for _ in range(rng.choice((0, 1, 1, 2, 2, 3))))
    inputs = {name: _array(rng, shape) for name in ("a", "b")[: rng.choice((1, 2))]}
    names, lines = list(inputs), list[str]()
    for number in range(rng.randint(1, 5)):
        step = rng.choice(_STEPS).format(rng.choice(names), rng.choice(names))
        lines.append(f"    t{number} = {step}")
        names.append(f"t{number}")
    text = f"def program({', '.join(inputs)}):\n" + "\n".join([*lines, f"    return {names[-1]}", ""])
    return Program(f"seed {seed}", text, inputs)


def _array(rng: random.Random, shape: tuple[int, ...]) -> Array:
    """An array of a random dtype that lies in memory as it likes."""
    dtype = np.dtype(rng.choice(_DTYPES))
    wide = tuple(2 * extent for extent in shape)
    values = np.array([rng.uniform(-4, 4) for _ in range(int(np.prod(wide)))]).reshape(wide)
    array = (values > 0 if dtype.kind == "b" else np.abs(values) if dtype.kind == "u" else values).astype(dtype)
    array = array[tuple(slice(None, None, 2) for _ in shape)]
    match rng.choice(("packed", "packed", "strided", "flipped", "transposed")):
        case "packed":
            return np.ascontiguousarray(array).reshape(shape)
        case "flipped":
            return array[::-1] if shape else array
        case "transposed":
            return np.ascontiguousarray(array.T).T
        case _:
            return array


# The judge.


def judge(program: Program) -> tuple[str, str]:
    """The verdict on a program, and what differs: right, as written, wrong, or exception."""
    function = program.function()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want = _outcome(function, program.inputs)
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            got = _outcome(noyau.op(program.function()), program.inputs)
        except NoyauError as error:
            return "exception", f"{type(error).__name__}: {error}"
    said = next((str(each.message) for each in caught if issubclass(each.category, ReferenceWarning)), "")
    # NumPy calculates with these in float16, and rounds each step, which an op does not.
    halves = any(each.dtype.str[1:] in ("f2", "u1", "i1", "b1") for each in program.inputs.values())
    difference = _difference(got, want, np.float16 if halves else None)
    if difference:
        return "wrong", difference
    return ("as written", said) if said else ("right", "")


def _outcome(function: Callable[..., Any], inputs: Mapping[str, Array]) -> Any:
    try:
        return function(*(each.copy(order="K") if each.base is None else each for each in inputs.values()))
    except NoyauError:
        raise
    except Exception as error:
        return error


def _difference(got: Any, want: Any, rounded: Any = None) -> str:
    """The first thing in which two outcomes differ, or nothing."""
    if isinstance(want, Exception) or isinstance(got, Exception):
        is_like = type(got) is type(want)
        return "" if is_like else f"got {got!r:.200}, want {want!r:.200}"
    if isinstance(want, tuple | list):
        if not isinstance(got, tuple | list) or len(got) != len(want):  # several results of an op are a tuple
            return f"got {type(got).__name__}, want {type(want).__name__} of {len(want)}"
        return next(filter(None, (_difference(*each, rounded) for each in zip(got, want, strict=True))), "")
    one, other = np.asarray(got), np.asarray(want)
    for what in ("dtype", "shape"):
        if getattr(one, what) != getattr(other, what):
            return f"{what} {getattr(one, what)}, want {getattr(other, what)}"
    if other.dtype.kind in "OUSMm":
        return "" if np.array_equal(one, other) else "other values"
    tolerance = 64 * float(np.finfo(rounded or other.dtype).eps) if other.dtype.kind in "fc" else 0.0
    most = float(np.max(np.abs(other), initial=0, where=np.isfinite(other))) if other.dtype.kind in "fc" else 0.0
    if not np.allclose(one, other, rtol=tolerance, atol=tolerance * most, equal_nan=other.dtype.kind in "fc"):
        return f"got {one.reshape(-1)[:5]}, want {other.reshape(-1)[:5]}"
    return ""


def main(words: Sequence[str] | None = None) -> int:
    """Run the suite as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000, help="random programs (default: 5000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first one (default: 0)")
    parser.add_argument("--only", default="", help="the examples of one function alone: np.pad")
    parser.add_argument("--time", type=float, default=20.0, help="seconds for each (default: 20)")
    wishes = parser.parse_args(words)
    counts, reasons, begin = Counter[str](), Counter[str](), time.monotonic()
    programs = [*documented(wishes.only), *(drawn(wishes.seed + n) for n in range(0 if wishes.only else wishes.count))]
    with ForkedWorker("its process", wishes.time, state=programs) as worker:
        for number, program in enumerate(programs):
            try:
                verdict, message = worker.call(_judge_one, number)
            except CheckError as error:
                verdict, message = "hang" if isinstance(error, UnansweredError) else "crash", str(error)
            counts[verdict] += 1
            if verdict == "as written":
                reasons[message.partition(" at line ")[0][:100]] += 1
            elif verdict != "right":
                print(f"{program.name}: {verdict}: {message[:300]}\n{program.text}", flush=True)
    print("; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(12)))
    totals = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    print(f"{totals}, in {time.monotonic() - begin:.0f} s")
    return int(set(counts) - {"right", "as written"} != set() or not counts["right"])


def _judge_one(programs: Sequence[Program], number: int) -> tuple[str, str]:
    return judge(programs[number])


if __name__ == "__main__":
    sys.exit(main())
