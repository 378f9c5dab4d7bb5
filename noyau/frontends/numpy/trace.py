"""Tracing of a NumPy function into a Graph, by one call. UnsupportedError names the line that cannot be traced.

`BoundedTape` limits the nodes that unrolled loops add to a trace with numbers in the place of sizes."""

import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from noyau.compiler.passes.cleanup import drop_unused
from noyau.dtypes import DType
from noyau.errors import NoyauError, UnsupportedError
from noyau.frontends.numpy import concatenation, products, searches, setitem  # noqa: F401  filling tables
from noyau.frontends.numpy.masked_arrays import UNKNOWN, MaskedArray
from noyau.frontends.numpy.scopes import in_scope
from noyau.frontends.numpy.tape import Retrace, Tape
from noyau.frontends.numpy.traced_array import TracedArray
from noyau.frontends.numpy.ufuncs import as_traced
from noyau.ir.dims import shape_of
from noyau.ir.graph import Constant, Graph, Input, Kind, Map, Node, Reduce, Scan, Select
from noyau.ir.graph_verifier import check
from noyau.ir.sizes import Demand

Function = Callable[..., Any]
Constants = Mapping[str, Any]
_NOYAU = Path(__file__).parents[2]
PACKAGES = tuple(map(str, (Path(np.__file__).parent, _NOYAU / "frontends", _NOYAU / "ir")))  # not the user's files
MOST_STEPS = 750  # with more, first calls were measured to take longer than about 10 s, and up to minutes
_WEIGHTS: dict[type[Kind], int] = {Reduce: 5, Scan: 5, Select: 15}  # their build time, in nodes of other kinds


class BoundedTape(Tape):
    """A tape that limits the nodes of loops: nodes added when an instruction of the user's code runs again."""

    def __init__(self, sizes: Mapping[str, int] | None = None, *, merging: bool = False) -> None:
        super().__init__(sizes, merging=merging)
        self.rounds: Counter[tuple[CodeType, int]] = Counter()  # the calls of each instruction
        self.last_call: FrameType | None = None  # the last call that an instruction made
        self.steps = 0

    def add(self, node: Node) -> Node:
        call = _user_frame()
        place = (call.f_back.f_code, call.f_back.f_lasti) if call.f_back else (call.f_code, 0)
        if call is not self.last_call:
            self.last_call = call
            self.rounds[place] += 1
        if self.rounds[place] > 1:
            self.steps += _WEIGHTS.get(type(node.kind), 1)
        if self.steps > MOST_STEPS:
            steps = f"a loop takes more than {MOST_STEPS} steps in {self.rounds[place]} rounds, which are unrolled"
            weights = "a reduction counts as 5, cells that are written into an array as 15"
            raise UnsupportedError(f"{steps} ({weights}); write it for whole axes, without a loop over cells")
        return super().add(node)


def _user_frame() -> FrameType:
    """The frame that the user's code called: the outermost one of NumPy or noyau up to here."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_back.f_code.co_filename.startswith(PACKAGES):
        frame = frame.f_back
    return frame


@dataclass(frozen=True, slots=True)
class Trace:
    """A traced function. `inputs`: its parameters that are arrays, as Input nodes, used or not; `results`: its results,
    likewise. `specialised`: the sizes that are numbers in it.

    It is valid for sizes that the shapes of the inputs bind and that meet the graph's demands."""

    graph: Graph
    inputs: tuple[Node, ...]
    results: tuple[Node, ...]
    specialised: Mapping[str, int]


def follow(
    function: Function,
    inputs: Sequence[Node],
    results: Sequence[Node] | None,
    constants: Constants,
    sizes: Mapping[str, int] | None = None,
    *,
    merging: bool = False,
) -> Trace:
    """Trace a function of arrays: `inputs` and `results` are its signature, as Input nodes; a node of kind Constant is
    a number that is passed as it is, and no input of the graph. Without `results`, the returned values are named `out`,
    or `out0`, `out1`...

    Sizes stay names; NumPy's conditions on them (that they are equal, that a slice is within its axis) become
    demands of the graph. Values bear the names of the function's variables. UnsupportedError names the refused line.

    `sizes`: numbers that answer the function's questions about sizes. A comparison (`if n > 4`, a slice that may reach
    beyond its axis) becomes a demand; where a number is needed (`int(n)`, `range(n)`, a loop over an axis) the function
    is traced again with the number in the place of the name."""
    fixed: dict[str, int | str] = {}
    while True:
        arguments = [_substitute(node, fixed) for node in inputs]
        signed = None if results is None else [_substitute(node, fixed) for node in results]
        remaining = {name: size for name, size in (sizes or {}).items() if name not in fixed}
        numbers = {name: value for name, value in fixed.items() if isinstance(value, int)}
        tape = (BoundedTape if numbers else Tape)(remaining, merging=merging)
        try:
            graph, outputs = _trace(function, arguments, signed, constants, tape)
        except Retrace as question:
            fixed |= question.known
            continue
        except UnsupportedError as error:
            raise UnsupportedError(str(error), partial(holds, numbers, tuple(tape.demands))) from error.__cause__
        return Trace(graph, tuple(node for node in arguments if isinstance(node.kind, Input)), outputs, numbers)


def holds(specialised: Mapping[str, int], demands: Sequence[Demand], sizes: Mapping[str, int]) -> bool:
    """Whether sizes equal the specialised numbers and meet the demands, so that a trace would have the same outcome."""
    alike = all(sizes.get(name, number) == number for name, number in specialised.items())
    return alike and all(demand.holds(sizes) for demand in demands)


def trace_shapes(function: Function, arrays: Mapping[str, tuple[DType, Sequence[int]]], constants: Constants) -> Trace:
    """Trace a function without a signature. `arrays`: dtypes and shapes by the names of its parameters.

    An extent of 1 is a number; others get the name of the parameter and the axis (`x_0`), and axes that must be equal
    share one. UnsupportedError names the line that cannot be traced."""
    sizes = {f"{name}_{k}": n for name, (_, shape) in arrays.items() for k, n in enumerate(shape) if n != 1}
    inputs = [
        Node(name, Input(), (), dtype, shape_of(1 if n == 1 else f"{name}_{k}" for k, n in enumerate(shape)))
        for name, (dtype, shape) in arrays.items()
    ]
    return follow(function, inputs, None, constants, sizes, merging=True)


def _substitute(node: Node, numbers: Mapping[str, int | str]) -> Node:
    shape = node.shape
    while any(name in numbers for dim in shape for name in dim.names):
        shape = tuple(dim.replace(numbers) for dim in shape)
    return replace(node, shape=shape)


def _trace(
    function: Function, inputs: Sequence[Node], results: Sequence[Node] | None, constants: Constants, tape: Tape
) -> tuple[Graph, tuple[Node, ...]]:
    arguments = [_argument(tape, node) for node in inputs]
    named: dict[str, str] = {}
    try:
        with np.errstate(all="ignore"), _variables(function, named):
            returned = in_scope(function, tape)(*arguments, **constants)
        if tape.refused is not None:
            raise tape.refused
        parts, several = _parts(returned, results)
        signed = results or [_result_input(tape, part, k, several) for k, part in enumerate(parts)]
        nodes = [_result(tape, *pair) for pair in zip(parts, signed, strict=True)]
    except Exception as fault:
        name = getattr(function, "__name__", "the function")
        reason = str(fault) if isinstance(fault, NoyauError) else f"{type(fault).__name__}: {fault}"
        raise UnsupportedError(f"{name} cannot be traced{_line(fault)}: {reason}") from fault
    shapes = tuple(dict.fromkeys(node.shape for node in tape.nodes if node.shape))
    graph = Graph(tuple(tape.nodes), tuple(node.output for node in nodes), tuple(tape.demands), shapes)
    outputs = tuple(Node(node.output, Input(), (), node.dtype, node.shape) for node in nodes)
    return check(_rename(drop_unused(graph), named)), outputs


def _parts(returned: Any, results: Sequence[Node] | None) -> tuple[list[Any], bool]:
    """The results, and whether there are several. UnsupportedError for None, or for another number than is signed."""
    several = isinstance(returned, tuple | list) and (results is None or len(results) > 1)
    parts = list(returned) if several else [returned]
    if not parts or any(part is None for part in parts):
        raise UnsupportedError("it returns nothing; let it return its results")
    if results is not None and len(parts) != len(results):
        raise UnsupportedError(f"it returns {len(parts)} results, and its signature has {len(results)}")
    return parts, several


def _argument(tape: Tape, node: Node) -> Any:
    if isinstance(node.kind, Constant):
        return node.kind.value.item()
    parameter = tape.add_input(node.output, node.dtype, node.shape)
    argument = TracedArray(tape, parameter, owner=f"the argument {node.output}", scalar=not node.shape)
    argument.either = argument.scalar
    return argument


@contextmanager
def _variables(function: Function, named: dict[str, str]) -> Iterator[None]:
    """Record which value each variable of the function has as it returns: names of values to names of variables."""
    code: CodeType | None = getattr(function, "__code__", None)
    before = sys.getprofile()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "return" and frame.f_code is code and argument is not None:  # with None it may be a fault
            for name, value in frame.f_locals.items():
                if isinstance(value, TracedArray) and value.is_sure:
                    named.setdefault(value.node.output, name)

    with _pause(before):
        sys.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(before if callable(before) else None)


@contextmanager
def _pause(profiler: Any) -> Iterator[None]:
    """Suspend a profiler that is no function (cProfile's before Python 3.12): only its own `enable` resumes it."""
    pausable = profiler is not None and not callable(profiler)
    if pausable:
        profiler.disable()
    try:
        yield
    finally:
        if pausable:
            profiler.enable()


def _rename(graph: Graph, named: Mapping[str, str]) -> Graph:
    """Rename values to the names of variables, except inputs and outputs; a name that is taken gets underscores."""
    live = {node.output for node in graph.inputs} | set(graph.outputs)
    names, new = set(live), {}
    for node in graph.nodes:
        name = named.get(node.output)
        if name is not None and node.output not in live:
            while name in names or name in graph.by_name:
                name += "_"
            new[node.output] = name
            names.add(name)
    return replace(graph, nodes=tuple(node.rename(new) for node in graph.nodes))


def _result_input(tape: Tape, value: Any, position: int, several: bool) -> Node:
    """The Input node of a result of a function without a signature."""
    node = _value(tape, value)
    name = f"out{position}" if several else "out"
    while name in tape.by_name:
        name += "_"
    return Node(name, Input(), (), node.dtype, node.shape)


def _value(tape: Tape, value: Any) -> Node:
    if isinstance(value, MaskedArray):
        raise UnsupportedError(UNKNOWN)
    return as_traced(tape, value).node


def _result(tape: Tape, value: Any, wanted: Node) -> Node:
    node = _value(tape, value)
    if node.dtype is not wanted.dtype or len(node.shape) != len(wanted.shape):
        actual = f"{node.dtype.value}[{', '.join(map(str, node.shape))}]"
        signed = f"{wanted.dtype.value} of {len(wanted.shape)} axes"
        raise UnsupportedError(f"{wanted.output} is {actual}, and {signed} by the signature; cast or reshape it")
    shaped = tape.assume_shape(node, wanted.shape)
    return tape.add(Node(wanted.output, Map("identity"), (shaped.output,), shaped.dtype, wanted.shape))


def _line(fault: Exception) -> str:
    """The innermost line of a traceback outside of NumPy and noyau, as text; empty if there is none."""
    frames = traceback.extract_tb(fault.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((*PACKAGES, "<"))]
    return f" at line {own[-1].lineno} of {own[-1].filename}" if own else ""
