"""Peers by name: an op's reference, or a function, compiled by torch.compile, Numba or numexpr."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from noyau.codegen.index_maps import is_broadcast
from noyau.codegen.numpy.maps import CALLS
from noyau.codegen.numpy.terms import INFIX
from noyau.errors import InputError, MissingExtraError, UnsupportedError
from noyau.hosts.numpy.dlpack import as_array, is_foreign
from noyau.ir.graph import Constant, Graph, Input, Map, Node, Reduce, View
from noyau.jobs.bench.tasks import BenchTarget, Function
from noyau.kernels.programs.generate import specialization_of, trace_reference
from noyau.ops.op import Op
from noyau.signatures.instances import bind

_PACKAGES = {"torch.compile": "torch", "numexpr": "numexpr", "numba": "numba"}
_REDUCTIONS = ("sum", "prod", "max", "min")
_KNOWN = frozenset(  # functions of numexpr 2.8
    "abs arccos arccosh arcsin arcsinh arctan arctan2 arctanh ceil cos cosh exp expm1 floor fmod log log10 log1p sin "
    "sinh sqrt tan tanh where maximum minimum".split()
)
_FORMS = {"identity": "{}", "negative": "(-{})", "reciprocal": "(1 / {})", "rsqrt": "(1 / sqrt({}))"}


def named_peers(names: Sequence[str], what: BenchTarget) -> dict[str, Function]:
    """The peers of these names, each made of the op's reference, or of the first function.

    InputError for an unknown name, MissingExtraError where its package is not installed."""
    peers = dict[str, Function]()
    for name in names:
        if name not in _PACKAGES:
            raise InputError(f"--against {name}: there is no such peer; there are {', '.join(_PACKAGES)}")
        try:
            package = import_module(_PACKAGES[name])
        except ImportError:
            needs = f"needs {_PACKAGES[name]}: pip install {_PACKAGES[name]}"
            raise MissingExtraError(f"--against {name} {needs}") from None
        peers[name] = _numexpr(package, what) if name == "numexpr" else _compile(name, package, what)
    return peers


def _compile(name: str, package: Any, what: BenchTarget) -> Function:
    """The function compiled by a compiler of NumPy calls; tensors, which torch's peers get, become arrays."""
    if isinstance(what, Op) and what.description.reference.outputs:
        raise InputError(f"{what.name} fills its outputs; --against needs a reference that returns them")
    function = what.reference if isinstance(what, Op) else next(iter(what.values()))
    run = package.njit(parallel=True)(function) if name == "numba" else package.compile(function, dynamic=False)
    constants = what.description.reference.constants if isinstance(what, Op) else {}
    return lambda *inputs: run(*(as_array(each) if is_foreign(each) else each for each in inputs), **constants)


def _numexpr(numexpr: Any, what: BenchTarget) -> Function:
    """The traced reference as one numexpr expression. InputError for plain functions, which are not traced."""
    if not isinstance(what, Op):
        raise InputError("--against numexpr writes an expression of a traced reference: time an op, under @noyau.op")
    reference, signature = what.description.reference, what.require_signature()

    @cache
    def text_of(*forms: tuple[tuple[int, ...], str]) -> tuple[str, dict[str, Any]]:
        bound = bind(signature, [np.zeros(*form) for form in forms], what.known_sizes(reference.constants), what.name)
        return numexpr_text(trace_reference(reference, specialization_of(signature, bound, reference.constants)))

    def evaluate(*arguments: Any) -> Any:
        arrays = [np.asarray(each) for each in arguments]
        text, numbers = text_of(*((each.shape, each.dtype.str) for each in arrays))
        return numexpr.evaluate(text, numbers | {f"x{number}": each for number, each in enumerate(arrays)}, {})

    return evaluate


def numexpr_text(graph: Graph) -> tuple[str, dict[str, Any]]:
    """An expression of numexpr, with the inputs as x0, x1, ..., and its constants by name. UnsupportedError for views
    that do not broadcast, reductions within the expression, several results, or functions that numexpr lacks."""
    texts, numbers = dict[str, str](), dict[str, Any]()
    last = next((node.output for node in reversed(graph.nodes) if node.kind != Map("identity")), "")
    for node in graph.nodes:
        match node.kind:
            case Input():
                texts[node.output] = f"x{len(texts) - len(numbers)}"
            case Constant(value) if value.size == 1:
                texts[node.output] = name = f"c{len(numbers)}"
                numbers[name] = value.reshape(())
            case Map(function):
                texts[node.output] = _call(function, [texts[each] for each in node.inputs], node, graph)
            case View(index) if is_broadcast(index, graph[node.inputs[0]].shape, node.shape):
                texts[node.output] = texts[node.inputs[0]]
            case Reduce(monoid, axes) if monoid in _REDUCTIONS and len(axes) == 1 and node.output == last:
                texts[node.output] = f"{monoid}({texts[node.inputs[0]]}, axis={axes[0]})"
            case kind:
                raise UnsupportedError(f"numexpr has no {type(kind).__name__.lower()} like {node.output}")
        if len(texts[node.output]) > 20_000 or len(graph.outputs) != 1:
            raise UnsupportedError("numexpr takes one result, of an expression that is not too long")
    return texts[graph.outputs[0]], numbers


def _call(function: str, operands: Sequence[str], node: Node, graph: Graph) -> str:
    """The call of a scalar function as text. UnsupportedError where numexpr lacks it."""
    idle = function == "cast" and graph[node.inputs[0]].dtype is node.dtype
    if form := _FORMS.get("identity" if idle else function):
        return form.format(*operands)
    if function in INFIX and len(operands) == 2:
        return f"({operands[0]} {INFIX[function][0]} {operands[1]})"
    name = CALLS.get(function, function).removeprefix("np.")
    if name not in _KNOWN:
        raise UnsupportedError(f"numexpr has no function {function}")
    return f"{name}({', '.join(operands)})"
