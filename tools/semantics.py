"""Write docs/semantics.md: the meaning of every function, monoid and node, from the tables that define it.

`python tools/semantics.py` writes it; a test compares. The matrix of support is computed: a kernel of each function is
printed in each language and dtype.
"""

from __future__ import annotations

import inspect
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from noyau.codegen import cmath
from noyau.codegen.language import GENERATIONS
from noyau.codegen.numpy import printer as numpy_printer
from noyau.codegen.onnx import printer as onnx_printer
from noyau.codegen.onnx.emitter import NodeWriter
from noyau.codegen.tables import SCALARS
from noyau.compiler.autodiff.reductions import WORDS
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.functions import OF_TABLE
from noyau.ir.dims import shape_of
from noyau.ir.graph import Graph, Input, Kind, Map, Node
from noyau.ir.monoids import MONOIDS, Monoid
from noyau.ir.operators import (
    ANY,
    BOOL,
    FLOAT,
    INTEGER,
    MOVED,
    NUMBER,
    OPERATORS,
    UNDEFINED,
    Fact,
    Formula,
    Operator,
    dtype_of,
    has,
)
from noyau.kernels.programs.generate import print_program
from noyau.kernels.programs.program import program

FILE = Path(__file__).resolve().parent.parent / "docs" / "semantics.md"
PROBES = [dtype for dtype in DType if dtype.kind in ("float", "int", "uint", "bool") and not dtype.is_half]

_INTRODUCTION = """\
# What every value means

This file is generated from the tables of `noyau/ir`: change those, then run
`python tools/semantics.py`. Every front end, language and interpreter keeps to it.

The graph never promotes, broadcasts or guesses: the operands of a scalar function have one shape and one dtype, and a
front end writes the casts and the expansions of its own rules into the graph. Functions that differ in meaning have
different names (`divide`, `floor_divide`; `maximum`, `fmax`), and a language without a spelling for one refuses it.

A function's meaning on float64 is the truth that kernels are judged by: the graph is evaluated with every float widened
to float64, casts among floats are dropped, casts to integers and to float8 are obeyed.
"""

_RULES = (
    "float16 and bfloat16 are stored so and computed in float32. Between the operators of one kernel values stay in "
    "float32; what is written, and what the program casts to one of them, is rounded, to nearest, ties to even.",
    "A float8 is moved, and cast from and to float32, to nearest, ties to even, whatever stands around the cast. What "
    "lies beyond its range becomes infinity in f8e5m2, and NaN in the others, as ml_dtypes has it (torch differs for "
    "f8e4m3fn); clip what is to become the largest number.",
    "NaN: `maximum`, `minimum`, and the monoids max, min, argmax and argmin keep it; `fmax` and `fmin` prefer a "
    "number. Nothing equals NaN, and every comparison with it but `not_equal` is false.",
    "Ties: the first of equal values wins in argmax and argmin.",
    "-0.0 and denormals are kept; nothing is flushed to zero. Of 0.0 and -0.0, `maximum` and `minimum` may give "
    "either.",
    "Infinities are ordinary values: masks are full of -inf, and no language may assume that there are none.",
    "`a * b + c` may be rounded once instead of twice; not where a step follows (a cast to integers, `floor`, "
    "`round`...), for there an ulp is a whole step: grey values are NumPy's.",
    "Sums run in fixed lanes and blocks that are merged in order, so that bits do not depend on the number of threads. "
    "They may differ in the last bits from a sum in the order of the index. Whether a sum that overflows on its way, "
    "or meets infinities, ends as inf, -inf or NaN depends on its order, and in chains of matrix products on their "
    "brackets: of float32 and float64, what one of four orders ends as (as it is, what is above 0 first, what is below "
    "0 first, each by itself), or one of three bracketings (as it is, from the other side, in pairs), is right.",
    "`power` on float32 goes through float64; to the powers 2, 3 and -1 it is products and a reciprocal.",
    "Integers wrap around; a cast to a narrower integer keeps the low bits; every number but 0 is true as a bool.",
    "An index that is looked up (Gather, Scatter) is checked: outside its table it ends the run with an error, "
    "and nothing outside is read or written. On a GPU, whose kernels nobody waits for, what is outside is read as 0: "
    "an op looks at its indices at the first call with tensors of such shapes, at every call where "
    "CUDA_LAUNCH_BLOCKING=1 is set, and `noyau.stream` always.",
)

# What onnxruntime 1.17 to 1.31 gives where it differs; tests run each.
DIFFERENCES = (
    ("ReduceMax and ReduceMin of values with a NaN", "NaN", "passes over NaN: ReduceMax([1, nan, 3]) is 3"),
    ("Sigmoid in float32 of numbers below about -88", "a denormal", "0"),
    ("Relu(-0.0)", "0.0 or -0.0", "-0.0"),
)


Case = tuple[str, DType]  # a function, and a dtype of its arrays
TOGETHER = 8  # cases in one program


@cache
def document() -> str:
    """The whole document, in Markdown."""
    return "\n".join(
        [
            _INTRODUCTION,
            "## Element types\n",
            *_table(("name", "in NumPy", "computed in", "ONNX"), _dtypes()),
            "\n## Rules\n",
            *(textwrap.fill(f"- {rule}", 120, subsequent_indent="  ") for rule in _RULES),
            "\n## Scalar functions\n",
            _FUNCTIONS,
            *_table(("function", "takes", "gives", "meaning", "flops", "ulp", "in C", "notes"), _functions()),
            "\n## Support\n",
            _SUPPORT,
            *_table(("function", "NumPy", "torch", "ONNX", *GENERATIONS, "as NumPy", "as ONNX"), _support()),
            "\n## Undefined\n",
            "No language promises anything for these, and checks leave out the cells that they reach:\n",
            *(f"- {case}" for case in UNDEFINED),
            "\n## Monoids\n",
            _MONOIDS,
            *_table(("monoid", "takes", "gives", "meaning", "state", "exact", "flops"), _monoids()),
            "\n## Derivatives\n",
            _DERIVATIVES,
            *(textwrap.fill(f"- {rule}", 120, subsequent_indent="  ") for rule in _RULES_OF_DERIVATIVES),
            "",
            *_table(("function", "by the first operand", "by the second", "by the third"), _derivatives()),
            "\nAnd of monoids, for each cell x that is taken in:\n",
            *_table(("monoid", "of a reduction", "of a running result"), _derivatives_of_monoids()),
            "\n## Nodes of a graph\n",
            *_table(("kind", "meaning"), _kinds()),
            "\n## Where runtimes differ\n",
            "The tables win; a fused model then gives what the middle column says.\n",
            *_table(("what", "noyau", "onnxruntime"), DIFFERENCES),
            "",
        ]
    )


_FUNCTIONS = """\
Cell by cell. `flops` is the cost in float32 additions, by which groups are cut. `ulp` is the error that every language
must keep to, in float32 and float64, over the whole range; 0 is exact or correctly rounded. "In C" is what the text of
language `c` promises, float32 then float64; `benchmarks/ulp_sweep.py` measures it.
"""
_SUPPORT = """\
The front ends read the functions of these names; more are composed (docs/numpy.md lists NumPy's). The languages print
kernels of operands of these kinds: float is float32 and float64, integer is 8 to 64 bits of either sign; a kernel runs
on arrays of NumPy and tensors of torch (c and numba on the CPU, triton on a GPU) and, of language c, in onnxruntime.
"as NumPy" and "as ONNX": whether a graph is written back with the function, as text and as nodes.
"""
_MONOIDS = """\
Reduce, Scan and Scatter, and the merges of lanes, threads and chunks, share these. The state is shown for operands of
f16, or of bool: it may be several values, and is wider than a narrow float. Exact: no order of merges changes a bit (on
integers, sum and prod are exact too).
"""

_DERIVATIVES = """\
What a function hands back to its operands in reverse mode, for operands x or a, b and c, the result y and the gradient
g of the result. Formulas are made of the functions above, so that a gradient is a graph like any other, and can be
derived again. "0": the function is constant between its steps. Integers and bools have no gradient.
"""
_RULES_OF_DERIVATIVES = (
    "A value that `where`, `maximum`, `minimum`, `fmax` or `fmin` did not choose is given back 0, also where the "
    "derivative of what made it is infinite or NaN. torch gives NaN there.",
    "Ties of `maximum`, `minimum` and of the monoids max and min share evenly, as in torch; those of `fmax` and `fmin` "
    "go to the first operand, as in torch. A running maximum goes to the first of ties, where torch has the last.",
    "`power` to the exponent 0 gives 0 to its base, and a base of 0 gives 0 to an exponent that is not below 0. The "
    "derivative of `abs` at NaN is NaN, where torch has 0; that of logsumexp of -inf alone is 0, where torch has NaN.",
    "A sum of half types is accumulated in float32 and rounded once: of what was broadcast, of what was looked up "
    "twice, of what several values read. Formulas of half types are computed in float32.",
    "A maximum on which no result depends, as the one that softmax subtracts, has no gradient: it would be 0.",
    "A view hands back each cell to the cell it showed; a Gather scatters sums; a Scatter gathers, and one that "
    "overwrites gives to what was written last. Refused by name: Opaque, a Scatter of products, an einsum that names "
    "an axis twice.",
)


def _dtypes() -> Iterator[tuple[str, ...]]:
    for dtype in DType:
        if dtype is not DType.OTHER:
            yield dtype.value, dtype.numpy.name, dtype.compute.value, str(dtype.onnx)
    yield DType.OTHER.value, "strings, sequences, complex...", "never: only an Opaque makes and takes it", ""


def _functions() -> Iterator[tuple[str, ...]]:
    for operator in OPERATORS.values():
        names = ("x",) if operator.arity == 1 else ("a", "b", "c")[: operator.arity]
        signature = f"`{operator.name}({', '.join(names)})`"
        takes, gives, note = _takes(operator), _gives(operator), _literal(operator.note)
        meaning = _literal(operator.meaning)
        yield signature, takes, gives, meaning, str(operator.flops), f"{operator.ulp:g}", _in_c(operator.name), note


def _support() -> Iterator[tuple[str, ...]]:
    own = {function: name for name, function in OF_TABLE.items()}
    cases = [(name, dtype) for name, each in OPERATORS.items() for dtype in PROBES if dtype.kind in each.accepts]
    written = [set(_written(cases, write)) for write in (*map(_in, GENERATIONS), _as_numpy, _as_onnx)]
    for name, operator in OPERATORS.items():
        numpy = operator.names.numpy or (f"noyau.functions.{own[name]}" if name in own else "")
        names = (_literal(", ".join(each.split())) for each in (numpy, operator.names.torch, operator.names.onnx))
        yield f"`{name}`", *names, *(_kinds_in([each for each in PROBES if (name, each) in some]) for some in written)


def _kinds_in(written: Sequence[DType]) -> str:
    """The kinds of these dtypes; single dtypes where they are not all of a kind."""
    kinds = []
    for kind, accepted in (("float", FLOAT), ("integer", INTEGER), ("bool", BOOL)):
        members = [dtype for dtype in PROBES if dtype.kind in accepted]
        found = [dtype.value for dtype in written if dtype in members]
        kinds += [kind] if len(found) == len(members) else found
    return ", ".join(kinds)


def _written(cases: Sequence[Case], write: Callable[[Graph], object]) -> Sequence[Case]:
    """Those functions of arrays, by dtype, that `write` knows: together, as nearly all are, or else by halves."""
    if len(cases) <= TOGETHER:
        try:
            write(_graph(cases))
            return cases
        except UnsupportedError:
            if len(cases) == 1:
                return ()
    half = len(cases) // 2
    return [*_written(cases[:half], write), *_written(cases[half:], write)]


def _graph(cases: Sequence[Case]) -> Graph:
    """A graph with an output for each of these functions, of arrays that they share."""
    shape, inputs, nodes = shape_of(["n"]), {}, []
    for number, (name, dtype) in enumerate(cases):
        dtypes = (DType.BOOL, dtype, dtype) if name == "where" else (dtype,) * OPERATORS[name].arity
        names = tuple(f"{letter}_{each}" for letter, each in zip("abc", dtypes, strict=False))
        inputs |= {name: Node(name, Input(), (), each, shape) for name, each in zip(names, dtypes, strict=True)}
        result = dtype if name == "cast" else dtype_of(name, dtypes)
        nodes.append(Node(f"y{number}", Map(name), names, result, shape))
    return Graph((*inputs.values(), *nodes), tuple(node.output for node in nodes))


def _in(language: str) -> Callable[[Graph], object]:
    return lambda graph: print_program(program(graph, "kernel", None, GENERATIONS[language].schedule), language, "")


def _as_numpy(graph: Graph) -> object:
    return numpy_printer.write(graph, "function")


def _as_onnx(graph: Graph) -> object:
    names = {name: name for name in (*(node.output for node in graph.inputs), *graph.outputs)}
    return onnx_printer.spell(graph, NodeWriter(), names)


def _derivatives() -> Iterator[tuple[str, ...]]:
    """The functions of floats, and what each hands back."""
    for name, operator in OPERATORS.items():
        if operator.derivative or (Fact.STEPS in operator.facts and "float" in operator.accepts):
            found = [_literal(each) for each in formula_texts(name)]
            yield f"`{name}`", *found, *[""] * (3 - len(found))


def _derivatives_of_monoids() -> Iterator[tuple[str, ...]]:
    return ((f"`{name}`", *map(_literal, words)) for name, words in WORDS.items())


def _takes(operator: Operator) -> str:
    kinds = _kinds_of(operator.accepts)
    return f"bool, then {kinds}" if operator.name == "where" else kinds


def _gives(operator: Operator) -> str:
    return {"same": "the same", "bool": "bool", "cast": "any"}[operator.result]


def _kinds_of(accepts: frozenset[str]) -> str:
    """A set of kinds of dtypes in words."""
    names = {FLOAT: "float", INTEGER: "integer", BOOL: "bool", NUMBER: "float, integer", ANY: "any"}
    return {**names, MOVED: "any, float8"}[accepts]


def _in_c(name: str) -> str:
    found = [cmath.ULP.get(f"noyau_{SCALARS.get(name)}_{width}") for width in ("f32", "f64")]
    return ", ".join(f"{each:g}" for each in found if each is not None)


def _monoids() -> Iterator[tuple[str, ...]]:
    for monoid in (each for each in MONOIDS.values() if not each.ordered):  # those are a user's own
        state = ", ".join(dtype.value for dtype in monoid.states(_probe(monoid)))
        exact, meaning = ("yes" if monoid.exact else "no"), _literal(monoid.meaning)
        takes = _kinds_of(frozenset(monoid.accepts))
        yield f"`{monoid.name}`", takes, _result(monoid), meaning, state, exact, str(monoid.flops)


def _probe(monoid: Monoid) -> DType:
    """A dtype that the monoid takes and that shows what is widened."""
    return DType.F16 if "float" in monoid.accepts else DType.BOOL


def _result(monoid: Monoid) -> str:
    result = monoid.result(_probe(monoid))
    return "the same" if result is _probe(monoid) else result.value


def _kinds() -> Iterator[tuple[str, ...]]:
    for kind in typing.get_args(Kind):
        yield f"`{kind.__name__}`", _literal(" ".join((inspect.getdoc(kind) or "").split()))


def _literal(text: str) -> str:
    """Text that Markdown would not take for a table's bar or for emphasis."""
    for letter in "\\|*<>_[]":
        text = text.replace(letter, "\\" + letter)
    return text


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield "|" + " --- |" * len(headings)
    for row in rows:
        yield f"| {' | '.join(row)} |"


_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "logical_and": "and", "logical_or": "or"}
_SIGNS |= {"equal": "=", "less": "<", "greater": ">", "greater_equal": ">=", "less_equal": "<="}


class Spelling:
    """The algebra of texts: a formula as it is read."""

    def call(self, name: str, *operands: str) -> str:
        if name == "negative":
            return f"-{_bracketed(operands[0])}"
        if name == "where":
            return f"({operands[1]} where {operands[0]}, else {operands[2]})"
        if name in _SIGNS:
            left = operands[0] if name == "multiply" and _is_product(operands[0]) else _bracketed(operands[0])
            return f"{left} {_SIGNS[name]} {_bracketed(operands[1])}"
        return f"{name}({', '.join(operands)})"

    def like(self, value: float, other: str) -> str:
        return f"{value:.6g}"

    def cast(self, value: str, dtype: DType) -> str:
        return f"{dtype.value}({value})"


def _bracketed(text: str) -> str:
    depth = 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == " " and not depth:
            return f"({text})"
    return text


def _is_product(text: str) -> bool:
    return not any(f" {sign} " in text for sign in ("+", "-", "/", "where", "and", "or"))


def formula_texts(function: str) -> tuple[str, ...]:
    """The derivative by each operand in words: a formula, "0", or "none" where there is none to have."""
    operator = OPERATORS[function]
    if has(function, Fact.STEPS):
        return ("0",) * operator.arity
    algebra = Spelling()
    names: Sequence[str] = {1: ("x",), 2: ("a", "b"), 3: ("c", "a", "b")}[operator.arity]
    terms = [Formula(algebra, name) for name in (*names, "y", "g")]
    rules = operator.derivative or (None,) * operator.arity
    return tuple("none" if rule is None else str(rule(*terms).value) for rule in rules)


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
