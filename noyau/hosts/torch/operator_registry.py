"""Operators of torch: one definition each in torch's registry, and tensors without cells for tracing."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from noyau.compiler.lowering.names import identifier
from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.torch.tensors import device_of, stand_in
from noyau.ir.dims import Shape
from noyau.ir.graph import Graph
from noyau.ir.sizes import plan
from noyau.signatures.instances import Bound, bind, sizing_integers
from noyau.signatures.types import Signature, Value
from noyau.text import free_name
from noyau.toolchain.cache import digest
from noyau.version import __version__

NAMESPACE = "noyau"
DEVICES = ("CPU", "CUDA")  # whose tensors operators run on, as torch's dispatcher calls them
LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
_LOCK = threading.RLock()
_TAKEN: set[str] = set()
_SHARED: dict[str, Any] = {}  # overloads by key
_DIGITS = 8


@dataclass(frozen=True, slots=True)
class TorchOperator:
    """The registration of an operator with torch. `inputs` and `constants`: the type of each in the schema; constants
    are passed by keyword, as `c0`, `c1`..., since torch may not accept their own names. `run`: on tensors of a device;
    `fake`: on tensors without cells; `record`: where autograd records; `batch`: under vmap, in the form of
    torch.library.register_vmap; `promote`: casts the inputs under autocast."""

    stem: str
    identity: str  # distinguishes it from others of its stem
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    results: int
    run: Callable[..., Any]
    fake: Callable[..., Any]
    record: Callable[..., Any]
    batch: Callable[..., Any]
    promote: Callable[[Sequence[Any]], Sequence[Any]] | None = None


def register(operator: TorchOperator, *, shared: bool = False) -> Any:
    """Register a new operator: its overload, `torch.ops.noyau.<stem>_<digest>.default`, or with the next free name
    where this one is taken. `shared`: an operator that equals an earlier one is the earlier overload."""
    with _LOCK:
        key = digest(__version__, operator.stem, operator.identity)  # another version may derive another gradient
        if shared and key in _SHARED:
            return _SHARED[key]
        name = free_name(f"{identifier(operator.stem)}_{key[:_DIGITS]}", _TAKEN)
        _TAKEN.add(name)
        schema = schema_of(operator.inputs, operator.constants, operator.results)
        overload = define(name, schema, operator.run, operator.fake, _TAGS)
        torch.library.register_vmap(f"{NAMESPACE}::{name}", operator.batch, lib=LIBRARY)
        LIBRARY.impl(name, _autograd(operator, overload), "Autograd", with_keyset=True)
        if operator.promote is not None:
            for device in DEVICES:
                promoted = _autocast(operator.promote, overload, f"Autocast{device}")
                LIBRARY.impl(name, promoted, f"Autocast{device}", with_keyset=True)
        return _SHARED.setdefault(key, overload)


def define(
    name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any], tags: tuple[torch.Tag, ...] = ()
) -> Any:
    """The overload of a new operator of this name, on tensors of every device and on tensors without cells."""
    LIBRARY.define(f"{name}{schema}", tags=tags)
    for device in DEVICES:
        LIBRARY.impl(name, run, device)
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=LIBRARY)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def schema_of(inputs: Sequence[str], constants: Sequence[str], results: int) -> str:
    """The schema of an operator: its inputs by position, constants by keyword, tensors as its results."""
    places = [f"{kind} x{at}" for at, kind in enumerate(inputs)]
    keywords = ["*", *(f"{kind} c{at}" for at, kind in enumerate(constants))] if constants else []
    tensors = "Tensor" if results == 1 else f"({', '.join(['Tensor'] * results)})"
    return f"({', '.join([*places, *keywords])}) -> {tensors}"


def _autograd(operator: TorchOperator, overload: Any) -> Callable[..., Any]:
    def autograd(keyset: Any, *args: Any, **constants: Any) -> Any:
        if (result := operator.record(args, constants)) is not None:
            return result
        with torch._C._AutoDispatchBelowAutograd():
            return overload.redispatch(keyset & torch._C._after_autograd_keyset, *args, **constants)

    return autograd


def _autocast(promote: Callable[[Sequence[Any]], Sequence[Any]], overload: Any, key: str) -> Callable[..., Any]:
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def autocast(keyset: Any, *args: Any, **constants: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return overload(*promote(args), **constants)

    return autocast


def bind_sizes(signature: Signature, arguments: Sequence[Any], known: Mapping[str, int], label: str) -> Bound:
    """Bind tensors, whether they have cells or not; a symbolic size counts with its number at the trace.
    SignatureError as for arrays."""
    sizing = sizing_integers(signature)
    pairs = zip(signature.inputs, arguments, strict=True)
    return bind(signature, [stand_in(each, exact=term.name in sizing) for term, each in pairs], known, label)


def results_of(bound: Bound, arguments: Sequence[Any]) -> list[torch.Tensor]:
    """The results of an op for these arguments, as tensors without values."""
    sizes = solve_sizes([value.shape for value in bound.instance.inputs], arguments)
    return [_empty(value, sizes, arguments) for value in bound.instance.outputs]


def results_of_graph(graph: Graph, arguments: Sequence[Any]) -> list[torch.Tensor]:
    """The results of a graph, as tensors without values."""
    sizes = solve_sizes([node.shape for node in graph.inputs], arguments)
    nodes = [graph[name] for name in graph.outputs]
    return [_empty(Value(node.output, node.dtype, node.shape), sizes, arguments) for node in nodes]


def solve_sizes(shapes: Sequence[Shape], arguments: Sequence[Any]) -> dict[str, Any]:
    """The sizes of a call: symbolic ones stay so, and torch checks which of them must be equal."""
    extents = [tuple(each.shape) if isinstance(each, torch.Tensor) else () for each in arguments]
    sizes: dict[str, Any] = {}
    for binding in plan(shapes):
        extent = extents[binding.input][binding.axis] - binding.offset.evaluate(sizes)
        sizes[binding.size] = extent if binding.factor == 1 else extent // binding.factor
    for shape, own in zip(shapes, extents, strict=True):
        for dim, extent in zip(shape, own, strict=True):
            if dim.names <= sizes.keys():
                torch._check(dim.evaluate(sizes) == extent, lambda: "shapes do not fit the operator's signature")
    return sizes


def _empty(value: Value, sizes: Mapping[str, Any], arguments: Sequence[Any]) -> torch.Tensor:
    shape = [dim.evaluate(sizes) for dim in value.shape]
    return torch.empty(shape, dtype=TO_TORCH[value.dtype], device=device_of(arguments))
