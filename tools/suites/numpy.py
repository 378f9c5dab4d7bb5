"""NumPy's own examples and random programs as ops: `python -m tools.suites.numpy`.

The examples are those of the docstrings of the functions that docs/numpy.md lists; an example is an expression, its
arrays are the inputs. A random program is a few lines of what arrays do, on inputs of random dtypes, shapes and
strides. Each is called as an op and by NumPy itself: right where value, dtype, shape and the type of an error are the
same (an op packs its results, gives several as a tuple, and one of no axes as a number), and no kernel failed its
certificate; `as written` where the op said that it runs as its reference. Exit status 0 where none is wrong."""

# ruff: noqa: S102, S307, S311, BLE001  it runs what NumPy's docstrings hold, and takes whatever that raises

from __future__ import annotations

import argparse
import ast
import doctest
import io
import json
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
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
    "np.clip({0}, -1, 1)", "{0}.astype('f4')", "{0}.astype('f8')", "{0}.T", "{0}[::-1]", "{0}[..., ::2]",
    "{0}[..., -1:]", "{0}.reshape(-1)", "{0}[None]", "{0}.max(axis=0, initial=0)", "{0}.mean()", "{0}.sum()",
    "{0}.argmax()", "np.stack([{0}, {0}])", "np.roll({0}, 1)", "np.concatenate([{0}, {0}], axis=-1)",
    "{0} - {0}.mean(axis=-1, keepdims=True)", "np.diff({0}, axis=-1)", "np.pad({0}, 1)", "{0} @ {0}.T",
    "{0} == {0}.max()", "np.tanh({0}) + {1}", "{0} * {1}", "np.minimum({0}, {1})", "{0} - {1}", "np.outer({0}, {1})",
    "{0} < {1}", "np.sum({0}, axis={axis}, keepdims={flag})", "np.prod({0}, axis={axis}, keepdims={flag})",
    "np.mean({0}, axis={axis}, keepdims={flag})", "np.max({0}, axis={axis}, keepdims={flag})",
    "np.min({0}, axis={axis}, keepdims={flag})", "np.any({0}, axis={axis}, keepdims={flag})",
    "np.all({0}, axis={axis}, keepdims={flag})", "np.var({0}, axis={axis}, keepdims={flag})",
    "np.std({0}, axis={axis}, keepdims={flag}, ddof=1)", "np.ptp({0}, axis={axis}, keepdims={flag})",
    "np.count_nonzero({0}, axis={axis}, keepdims={flag})", "np.argmin({0}, axis={axis}, keepdims={flag})",
    "np.nansum({0}, axis={axis}, keepdims={flag})", "np.nanmax({0}, axis={axis})", "np.average({0}, axis={axis})",
    "np.sum({0}, axis={axis}, dtype='f4')", "np.linalg.norm({0}, axis={axis})", "np.cumsum({0}, axis={axis})",
    "np.cumprod({0}, axis={axis})", "np.flip({0}, axis={axis})", "np.expand_dims({0}, {axis})",
    "np.squeeze({0}, {axis})", "np.swapaxes({0}, 0, {axis})", "np.moveaxis({0}, 0, {axis})",
    "np.repeat({0}, 2, axis={axis})", "np.take({0}, [0, -1], axis={axis})", "np.stack([{0}, {1}], axis={axis})",
    "np.concatenate([{0}, {1}], axis={axis})", "np.split({0}, 2, axis={axis})[1]", "np.roll({0}, 2, axis={axis})",
    "np.append({0}, {1}, axis={axis})", "np.add({0}, {1}, out=np.zeros_like({0}))",
    "np.multiply({0}, 2, out=np.zeros({0}.shape))", "np.add({0}, {1}, out=np.zeros(3, 'f4'))",
    "np.sum({0}, axis={axis}, out=np.zeros({0}.shape[1:]))", "np.sqrt({0}, out=np.zeros_like({0}), where={0} > 0)",
    "np.maximum.reduce({0}, axis={axis})", "np.add.outer({0}, {1})", "np.broadcast_to({0}, (3, 4))",
    "np.broadcast_to({0}, {1}.shape)", "{0}.reshape(2, -1)", "{0}.reshape({1}.shape)", "{0}[0]", "{0}[-1]",
    "{0}[1:3]", "{0}[..., None]", "{0}[::-2]", "{0}[:, 1]", "{0}[5:2]", "{0}[[0, 1]]", "{0}[{0} > 0].sum()",
    "{0}.astype('f2')", "{0}.astype(bool)", "np.log({0})", "np.log1p(np.abs({0}))", "1 / {0}", "{0} / {1}",
    "{0} % {1}", "{0} // {1}", "np.fmod({0}, {1})", "np.abs({0}) ** 0.5", "2.0 ** {0}", "{0} & 3", "{0} >> 1", "~{0}",
    "{0} ^ {1}", "np.logical_xor({0}, {1})", "np.isnan({0})", "np.floor({0})", "np.sign({0})",
    "np.where({0} < {1}, {0}, {1})", "np.einsum('...i->...', {0})", "np.einsum('ij,jk', {0}, {1})", "np.dot({0}, {1})",
    "np.tensordot({0}, {1}, axes=1)", "np.inner({0}, {1})", "np.matmul({0}, {1})", "np.vdot({0}, {1})",
    "np.kron({0}, {1})", "np.tile({0}, (2, 1))", "np.tril({0})", "np.diagonal({0})", "np.trace({0})",
    "np.atleast_2d({0})", "np.ravel({0})", "np.full_like({0}, 2)", "np.arange({0}.size)",
    "np.linspace(0, 1, {0}.size)", "np.ediff1d({0})", "np.hypot({0}, {1})", "np.array_equal({0}, {1})",
    "np.isclose({0}, {1})", "np.nan_to_num({0})", "np.convolve({0}, [1, 2])", "len({0}) * {1}",
    "np.zeros({0}.shape, {0}.dtype); {t}[...] = {1}", "{0} * 1; {t}[0] = 2", "{0}.copy(); {t} += {1}",
    "{0} + 0; {t}[::2] *= 2", "{0}.copy(); {t}[{t} > 1] = 0", "np.ones(5); np.add.at({t}, [0, 0, 3], 2)",
    "({0}, {1})[0]",
)  # fmt: skip
_AXES = ("None", "0", "-1", "0", "-1", "1", "2", "-2", "(0, 1)", "(0, -1)", "()", "(1,)", "(0, 0)", "-4")
_BOOLS = (" < ", "==", "bool", "np.is", "np.array_equal", "np.any", "np.all", "logical")  # what gives bools
_MOST_CELLS = 2_000
_RESULTS = ("{0}", "{0}", "{0}", "{0}", "({0}, {1})", "[{0}, {1}]")


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
    other = rng.choice((shape, shape, _narrow(rng, shape), shape[::-1]))
    inputs = {name: _array(rng, each) for name, each in (("a", shape), ("b", other))[: rng.choice((1, 2))]}
    scope, names, lines = {"np": np, **inputs}, list(inputs), list[str]()
    for number in range(rng.randint(1, 5)):
        for _ in range(rng.choice((1, 8, 8, 8, 8, 8, 8, 8))):  # seldom the first one that comes, which may fail
            words = {"axis": rng.choice(_AXES), "flag": rng.choice((False, False, True)), "t": f"t{number}"}
            step = f"t{number} = {rng.choice(_STEPS)}".format(rng.choice(names), rng.choice(names), **words)
            if _runs(step, scope):
                break
        lines.append(f"    {step}")
        names.append(f"t{number}")
        if f"t{number}" not in scope:
            break
    result = rng.choice(_RESULTS).format(names[-1], rng.choice(names[len(inputs) :]))
    text = f"def program({', '.join(inputs)}):\n" + "\n".join([*lines, f"    return {result}", ""])
    return Program(f"seed {seed}", text, inputs)


def _runs(step: str, scope: dict[str, Any]) -> bool:
    """Whether a step runs, which it then has, and is not large."""
    name = step.partition(" ")[0]
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        exec(step, scope)
        if np.size(scope[name]) <= _MOST_CELLS:
            return True
    scope.pop(name, None)
    return False


def _narrow(rng: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to another one."""
    return tuple(rng.choice((extent, 1)) for extent in shape)[rng.randint(0, len(shape)) :]


def _array(rng: random.Random, shape: tuple[int, ...]) -> Array:
    """An array of a random dtype that lies in memory as it likes."""
    dtype = np.dtype(rng.choice(_DTYPES))
    wide = tuple(2 * extent for extent in shape)
    values = np.array([rng.uniform(-4, 4) for _ in range(int(np.prod(wide)))]).reshape(wide)
    array = (values > 0 if dtype.kind == "b" else np.abs(values) if dtype.kind == "u" else values).astype(dtype)
    array = np.asarray(array[tuple(slice(None, None, 2) for _ in shape)])  # of no axes an array, no number
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
    want, expected = _watched(program.function(), program.inputs)
    op = noyau.op(program.function())
    try:
        got, caught = _watched(op, program.inputs)
        rejected = () if isinstance(got, Exception) else op.explain(*program.inputs.values()).rejected
    except NoyauError as error:
        return "exception", f"{type(error).__name__}: {error}"
    failed = next((f"{kernel}: {why}" for kernel, why in rejected if "certificate" in why), "")
    if failed:  # another kernel or the reference runs, and is right: the failure is noyau's all the same
        return "wrong", failed
    said = next((str(each.message) for each in caught if issubclass(each.category, ReferenceWarning)), "")
    difference = _difference(got, want, _rounded(program)) or _unlike(caught, expected)
    if difference:
        return "wrong", difference
    if said:
        return "as written", said
    results = got if isinstance(got, tuple) else (got,)
    is_packed = all(each.flags.c_contiguous and each.flags.writeable for each in results if isinstance(each, Array))
    return ("right", "") if is_packed else ("wrong", "a result is not packed, or cannot be written")


def _rounded(program: Program) -> Any:
    """The least precise float that NumPy calculates with; in float16, which it has for bools too, it rounds each step,
    which an op does not."""
    kinds = {each.dtype.str[1:] for each in program.inputs.values()}
    halves = kinds & {"f2", "u1", "i1", "b1"} or any(each in program.text for each in ("f2", *_BOOLS))
    return np.float16 if halves else np.float32 if "f4" in program.text or kinds & {"f4", "i2", "u2"} else np.float64


def _watched(
    function: Callable[..., Any], inputs: Mapping[str, Array]
) -> tuple[Any, Sequence[warnings.WarningMessage]]:
    """The outcome, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return _outcome(function, inputs), caught


def _unlike(caught: Sequence[warnings.WarningMessage], wanted: Sequence[warnings.WarningMessage]) -> str:
    """The kinds of warnings that one gives and the other does not; of what it calculates, a kernel gives none."""
    got, want = ({each.category for each in some} - {ReferenceWarning} for some in (caught, wanted))
    return f"it warns {got}, want {want}" if got - want or want - got - {RuntimeWarning} else ""


def _outcome(function: Callable[..., Any], inputs: Mapping[str, Array]) -> Any:
    try:
        return function(*(each.copy(order="K") if each.base is None else each for each in inputs.values()))
    except NoyauError:
        raise
    except Exception as error:
        return error


def _difference(got: Any, want: Any, rounded: Any) -> str:
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
    tolerance = 64 * float(max(np.finfo(rounded).eps, np.finfo(other.dtype).eps)) if other.dtype.kind in "fc" else 0.0
    most = float(np.max(np.abs(other), initial=0, where=np.isfinite(other))) if other.dtype.kind in "fc" else 0.0
    if not np.allclose(one, other, rtol=tolerance, atol=tolerance * most, equal_nan=other.dtype.kind in "fc"):
        return f"got {one.reshape(-1)[:5]}, want {other.reshape(-1)[:5]}"
    return ""


def main(words: Sequence[str] | None = None) -> int:
    """Run the suite as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000, help="random programs (default: 5000)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first one, with the examples where it is 0 (default: 0)"
    )
    parser.add_argument("--only", default="", help="the examples of one function alone: np.pad")
    parser.add_argument("--time", type=float, default=20.0, help="seconds for each (default: 20)")
    parser.add_argument("--log", type=Path, help="a JSON line a program; those that are there are not run again")
    wishes = parser.parse_args(words)
    counts, reasons, begin = Counter[str](), Counter[str](), time.monotonic()
    numbers = range(wishes.seed, wishes.seed + (0 if wishes.only else wishes.count))
    programs = [*(() if wishes.seed else documented(wishes.only)), *map(drawn, numbers)]
    judged = {name: (verdict, message) for name, verdict, message in map(json.loads, _lines(wishes.log))}
    with ForkedWorker("its process", wishes.time, state=programs) as worker:
        for number, program in enumerate(programs):
            try:
                verdict, message = judged.get(program.name) or worker.call(_judge_one, number)
            except CheckError as error:
                verdict, message = "hang" if isinstance(error, UnansweredError) else "crash", str(error)
            if wishes.log is not None and program.name not in judged:
                with wishes.log.open("a") as log:
                    log.write(json.dumps([program.name, verdict, message]) + "\n")
            counts[verdict] += 1
            if verdict == "as written":
                reasons[message.partition(" at line ")[0][:100]] += 1
            elif verdict != "right":
                print(f"{program.name}: {verdict}: {message[:300]}\n{program.text}", flush=True)
    print("; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(12)))
    totals = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    print(f"{totals}, in {time.monotonic() - begin:.0f} s")
    return int(set(counts) - {"right", "as written"} != set() or not counts["right"])


def _lines(log: Path | None) -> Sequence[str]:
    return log.read_text().splitlines() if log is not None and log.exists() else ()


def _judge_one(programs: Sequence[Program], number: int) -> tuple[str, str]:
    return judge(programs[number])


if __name__ == "__main__":
    sys.exit(main())
