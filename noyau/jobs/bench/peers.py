"""Peers by name: the reference of an op, or a function, as torch.compile, Numba and numexpr run it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from noyau.codegen.index_maps import is_broadcast
from noyau.codegen.numpy.maps import CALLS
from noyau.codegen.numpy.terms import INFIX
from noyau.errors import InputError, MissingExtraError, UnsupportedError
from noyau.hosts.numpy.dlpack import as_array, is_foreign
from noyau.ir.graph import Constant, Graph, Input, Map, Node, Reduce, View
from noyau.jobs.bench.candidates import Function
from noyau.kernels.programs.generate import specialization_of, trace_reference
from noyau.ops.op import Op
from noyau.signatures.binding import bind

_PACKAGES = {"torch.compile": "torch", "numexpr": "numexpr", "numba": "numba"}
_LONGEST = 20_000  # letters of an expression
_REDUCTIONS = ("sum", "prod", "max", "min")


def named_peers(names: Sequence[str], what: Op[..., Any] | Mapping[str, Function]) -> dict[str, Function]:
    """The peers of these names, each of the op's reference, or of the first of the functions.

    InputError for a name that there is not, MissingExtraError where its package is not installed."""
    peers = dict[str, Function]()
    for name in names:
        if name not in _PACKAGES:
            raise InputError(f"--against {name}: there is no such peer; there are {', '.join(_PACKAGES)}")
        try:
            package = import_module(_PACKAGES[name])
        except ImportError:
            raise MissingExtraError(
                f"--against {name} needs {_PACKAGES[name]}: pip install {_PACKAGES[name]}"
            ) from None
        peers[name] = _BUILDERS[name](package, what)
    return peers


def _plain(what: Op[..., Any] | Mapping[str, Function]) -> Function:
    """The function that a peer compiles. InputError for one that fills its outputs."""
    if not isinstance(what, Op):
        return next(iter(what.values()))
    reference = what.description.reference
    if reference.outputs:
        raise InputError(f"{what.name} fills its outputs; --against needs a reference that returns them")
    return partial(reference.function, **reference.constants) if reference.constants else reference.function


def _torch_compile(torch: Any, what: Op[..., Any] | Mapping[str, Function]) -> Function:
    """NumPy's functions as torch compiles them, on the arrays behind the tensors that a peer of torch's is given."""
    compiled = torch.compile(_plain(what), dynamic=False)
    return lambda *arguments: compiled(*(as_array(each) if is_foreign(each) else each for each in arguments))


def _numba(numba: Any, what: Op[..., Any] | Mapping[str, Function]) -> Function:
    function = _plain(what)
    jitted = numba.njit(parallel=True)(getattr(function, "func", function))
    return partial(jitted, **getattr(function, "keywords", {})) if isinstance(function, partial) else jitted


def _numexpr(numexpr: Any, what: Op[..., Any] | Mapping[str, Function]) -> Function:
    """The reference as traced, in one expression. InputError for plain functions, which are not traced."""
    if not isinstance(what, Op):
        raise InputError("--against numexpr writes an expression of a traced reference: time an op, under @noyau.op")
    reference, known = what.description.reference, set(import_module("numexpr.expressions").functions)
    constants = what.known(reference.constants)

    @cache
    def written(*forms: tuple[tuple[int, ...], str]) -> tuple[str, dict[str, Any]]:
        arrays = [np.zeros(shape, dtype) for shape, dtype in forms]
        bound = bind(what.require_signature(), arrays, constants, what.name)
        request = specialization_of(what.require_signature(), bound, reference.constants)
        return numexpr_text(trace_reference(reference, request), known)

    def evaluate(*arguments: Any) -> Any:
        arrays = [np.asarray(each) for each in arguments]
        text, numbers = written(*((each.shape, each.dtype.str) for each in arrays))
        names = {f"x{number}": each for number, each in enumerate(arrays)}
        return numexpr.evaluate(text, {**numbers, **names}, {})

    return evaluate


_BUILDERS: Mapping[str, Callable[[Any, Any], Function]] = {
    "torch.compile": _torch_compile,
    "numba": _numba,
    "numexpr": _numexpr,
}


def numexpr_text(graph: Graph, known: set[str]) -> tuple[str, dict[str, Any]]:
    """An expression of numexpr, with the inputs as x0, x1, ..., and the numbers in it by name; `known`: its functions.
    UnsupportedError for what it has no word for: views that do not broadcast, reductions within, several results."""
    texts, numbers = dict[str, str](), dict[str, Any]()
    if len(graph.outputs) != 1:
        raise UnsupportedError(f"numexpr gives one result, not {len(graph.outputs)}")
    inputs = iter(range(len(graph.nodes)))
    last = next((node.output for node in reversed(graph.nodes) if node.kind != Map("identity")), "")
    for node in graph.nodes:
        match node.kind:
            case Input():
                texts[node.output] = f"x{next(inputs)}"
            case Constant(value) if value.size == 1:
                texts[node.output] = name = f"c{len(numbers)}"
                numbers[name] = value.reshape(())
            case Map(function):
                texts[node.output] = _call(function, [texts[each] for each in node.inputs], node, graph, known)
            case View(index) if is_broadcast(index, graph[node.inputs[0]].shape, node.shape):
                texts[node.output] = texts[node.inputs[0]]
            case Reduce(monoid, axes) if monoid in _REDUCTIONS and len(axes) == 1 and node.output == last:
                texts[node.output] = f"{monoid}({texts[node.inputs[0]]}, axis={axes[0]})"
            case kind:
                raise UnsupportedError(f"numexpr has no {type(kind).__name__.lower()} like {node.output}")
        if len(texts[node.output]) > _LONGEST:
            raise UnsupportedError("the expression would be too long for numexpr")
    return texts[graph.outputs[0]], numbers


def _call(function: str, operands: Sequence[str], node: Node, graph: Graph, known: set[str]) -> str:
    """A scalar function of operands."""
    if function == "identity" or (function == "cast" and graph[node.inputs[0]].dtype is node.dtype):
        return operands[0]
    if function == "negative":
        return f"(-{operands[0]})"
    if function == "reciprocal":
        return f"(1 / {operands[0]})"
    if function == "rsqrt":
        return f"(1 / sqrt({operands[0]}))"
    if function in INFIX and len(operands) == 2:
        return f"({operands[0]} {INFIX[function][0]} {operands[1]})"
    name = re.sub(r"^np\.", "", CALLS.get(function, function))
    if name not in known:
        raise UnsupportedError(f"numexpr has no function {function}")
    return f"{name}({', '.join(operands)})"
