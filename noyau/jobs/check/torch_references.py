"""References for functions of torch: in NumPy or torch, as a graph, and its derivative as another."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from noyau.compiler.autodiff.adjoints import derive, gradient_name
from noyau.dtypes import DType, from_numpy
from noyau.errors import InputError, UnsupportedError
from noyau.frontends.numpy.trace import follow
from noyau.hosts.torch.tensors import array_of, from_torch, tensor_of
from noyau.ir.dims import shape_of
from noyau.ir.graph import Graph, Input, Node
from noyau.jobs.check.gradients import central_difference
from noyau.kernels.reference import opaque_graph
from noyau.signatures.types import Value

Array = np.ndarray
Run = Callable[[Sequence[Array]], list[Array]]  # arrays of any float width to results of that width


@dataclass(frozen=True, slots=True)
class TorchReference:
    """A reference for arguments of these dtypes and shapes. `graph` gives its results; `gradient`, from the same
    inputs and the gradients of the float results, those of the float inputs; None with the reason where none can be
    told. `places`: of the tensors among the arguments."""

    inputs: tuple[Node, ...]
    graph: Graph
    gradient: Graph | None
    reason: str
    places: tuple[int, ...]

    @property
    def wanted(self) -> tuple[str, ...]:
        """The inputs that have gradients."""
        return tuple(node.output for node in self.inputs if node.dtype.is_float)

    @property
    def wanted_places(self) -> list[int]:
        """The places of float tensors among the arguments."""
        return [at for at, node in zip(self.places, self.inputs, strict=True) if node.dtype.is_float]

    @property
    def graded_places(self) -> list[int]:
        """The places of floats among the results."""
        return [at for at, name in enumerate(self.graph.outputs) if self.graph[name].dtype.is_float]

    def arrays(self, args: Sequence[Any]) -> tuple[Array, ...]:
        """The tensors among the arguments, packed."""
        return tuple(np.array(array_of(args[at])) for at in self.places)

    def above(self, rng: np.random.Generator) -> dict[str, Array]:
        """Gradients of the float results."""
        ends = [self.graph[self.graph.outputs[at]] for at in self.graded_places]
        shapes = [tuple(int(dim.evaluate({})) for dim in node.shape) for node in ends]
        numbers = [np.asarray(rng.standard_normal(shape)) for shape in shapes]
        return {gradient_name(n.output): each.astype(n.dtype.numpy) for n, each in zip(ends, numbers, strict=True)}


def reference_graphs(reference: Callable[..., Any], args: Sequence[Any], function_name: str) -> TorchReference:
    """The graphs of a reference, which is called with arrays, or else with tensors. An op is its own reference.

    InputError where it takes neither, or gives no arrays."""
    plain = getattr(reference, "reference", None)
    if callable(plain) and hasattr(reference, "description"):
        reference = plain
    places = tuple(at for at, each in enumerate(args) if isinstance(each, torch.Tensor))
    inputs = tuple(_input(name, args[at]) for name, at in zip(_names(reference, args, places), places, strict=True))
    arrays = [np.array(array_of(args[at])) for at in places]
    of_tensors = _of_tensors(reference, args, places)
    with np.errstate(all="ignore"):
        run, is_torch = _runner(of_tensors, arrays, function_name)
        results = run(arrays)
    names = [node.output for node in inputs]
    ends = [_end(f"out{at}" if len(results) > 1 else "out", array, names) for at, array in enumerate(results)]
    graph = opaque_graph(inputs, ends, function_name, lambda *arrays_of_call: tuple(run(arrays_of_call)))
    if is_torch:
        return TorchReference(inputs, graph, _torch_gradient(of_tensors, inputs, graph, function_name), "", places)
    try:
        traced = _with_inputs(follow(of_tensors, inputs, None, {}).graph, inputs)
        derived = derive(traced, [node.output for node in inputs if node.dtype.is_float]).gradient
    except UnsupportedError as error:
        return TorchReference(inputs, graph, None, f"the reference has no derivative: {error}", places)
    return TorchReference(inputs, traced, _with_inputs(derived, (*inputs, *_above(traced))), "", places)


def _names(reference: Callable[..., Any], args: Sequence[Any], places: Sequence[int]) -> list[str]:
    """The names of the tensors, as the reference has them."""
    try:
        parameters = [p for p in inspect.signature(reference).parameters.values() if p.kind in (0, 1)]
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters] if len(parameters) >= len(args) else [f"x{at}" for at in range(len(args))]
    return [names[at] for at in places]


def _input(name: str, tensor: torch.Tensor) -> Node:
    dtype = from_torch(tensor.dtype)
    assert dtype is not None, tensor.dtype
    return Node(name, Input(), (), dtype, shape_of(tensor.shape))


def _of_tensors(reference: Callable[..., Any], args: Sequence[Any], places: Sequence[int]) -> Callable[..., Any]:
    """The reference as a function of the tensors alone, which stand at these places among the arguments."""

    def bound(*values: Any) -> Any:
        arguments = list(args)
        for at, each in zip(places, values, strict=True):
            arguments[at] = each
        return reference(*arguments)

    bound.__name__ = getattr(reference, "__name__", "reference")
    return bound


def _runner(reference: Callable[..., Any], arrays: Sequence[Array], name: str) -> tuple[Run, bool]:
    """A way to run a reference of tensors alone, and whether it is one of torch."""

    def on_arrays(values: Sequence[Array]) -> list[Array]:
        return _arrays(reference(*values))

    def on_tensors(values: Sequence[Array]) -> list[Array]:
        with torch.no_grad():
            return _arrays(reference(*(tensor_of(np.array(each)) for each in values)))

    try:
        on_arrays(arrays)
    except (TypeError, ValueError, AttributeError, RuntimeError, IndexError) as fault:
        try:
            on_tensors(arrays)
        except Exception as other:
            problem = f"with arrays it ends with {short(fault)}; with tensors with {short(other)}"
            raise InputError(f"{name}: its reference does not take these arguments: {problem}") from other
        return on_tensors, True
    return on_arrays, False


def short(fault: Exception) -> str:
    """An error in a line."""
    return f"{type(fault).__name__}: {' '.join(str(fault).split())[:200]}"


def _arrays(result: Any) -> list[Array]:
    parts = list(result) if isinstance(result, tuple | list) else [result]
    if any(isinstance(part, torch.Tensor) for part in parts):
        return [array_of(part) for part in parts]
    arrays = [np.asarray(part) for part in parts]
    if any(from_numpy(each.dtype) in (None, DType.OTHER) for each in arrays):
        raise InputError(f"its reference gives {[type(part).__name__ for part in parts]}, and no arrays")
    return arrays


def _end(name: str, array: Array, names: Sequence[str]) -> Value:
    while name in names:
        name += "_"
    dtype = from_numpy(array.dtype)
    assert dtype is not None
    return Value(name, dtype, shape_of(array.shape))


def _above(graph: Graph) -> list[Node]:
    ends = [graph[name] for name in graph.outputs]
    return [Node(gradient_name(n.output), Input(), (), n.dtype, n.shape) for n in ends if n.dtype.is_float]


def _torch_gradient(reference: Callable[..., Any], inputs: Sequence[Node], graph: Graph, function_name: str) -> Graph:
    """The gradient as torch's autograd gives it through the reference, at the width of what it is given."""
    floats = [at for at, node in enumerate(inputs) if node.dtype.is_float]
    graded = [at for at, name in enumerate(graph.outputs) if graph[name].dtype.is_float]

    def evaluate(*values: Array) -> tuple[Array, ...]:
        tensors = [tensor_of(np.array(each)) for each in values[: len(inputs)]]
        for at in floats:
            tensors[at].requires_grad_()
        returned = reference(*tensors)
        results = list(returned) if isinstance(returned, tuple | list) else [returned]
        weights = [tensor_of(np.array(each)) for each in values[len(inputs) :]]
        leaves = [tensors[at] for at in floats]
        gradients = torch.autograd.grad([results[at] for at in graded], leaves, weights, materialize_grads=True)
        return tuple(map(array_of, gradients))

    ends = [Value(gradient_name(node.output), node.dtype, node.shape) for node in inputs if node.dtype.is_float]
    return opaque_graph((*inputs, *_above(graph)), ends, function_name, evaluate)


def _with_inputs(graph: Graph, inputs: Sequence[Node]) -> Graph:
    """The graph with these inputs, read or not, in order."""
    names = {node.output for node in inputs}
    rest = tuple(node for node in graph.nodes if node.output not in names)
    return Graph((*inputs, *rest), graph.outputs, graph.demands)


def difference(right: TorchReference, arrays: Sequence[Array], at: int, cell: tuple[int, ...]) -> float:
    """The derivative by a cell of the float input `at`, by central differences. `arrays`: inputs, then gradients."""
    count = len(right.inputs)
    inputs = dict(zip((node.output for node in right.inputs), arrays[:count], strict=True))
    above = dict(zip((right.graph.outputs[place] for place in right.graded_places), arrays[count:], strict=True))
    return central_difference(right.graph, inputs, above, right.wanted[at], cell)
