"""Boundaries: nodes that noyau does not look into. What they give, and how the interpreter runs them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from noyau.dtypes import DType, from_onnx
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.building import Values
from noyau.frontends.onnx.functions import canonical
from noyau.ir.dims import Dim, Shape

Run = Callable[[onnx.ModelProto, Mapping[str, np.ndarray]], Sequence[Any]]
LIBRARY = frozenset(
    "Attention AveragePool Conv ConvInteger ConvTranspose DeformConv Einsum FlexAttention GRU Gemm GlobalLpPool LSTM "
    "LpPool MatMul MatMulInteger MaxPool QLinearConv QLinearMatMul RNN".split()
)
CONTROL_FLOW = frozenset("If Loop Scan SequenceMap".split())
RANDOM = frozenset("Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split())


_FAULTS = (NotImplementedError, RuntimeError, TypeError, ValueError, AttributeError, KeyError, IndexError)


def reason_for(node: onnx.NodeProto) -> str:
    """Why noyau does not look into a node of an operator for which it has no meaning."""
    if node.domain in ("", "ai.onnx"):
        if node.op_type in LIBRARY:
            return f"{node.op_type} is a library call"
        if node.op_type in CONTROL_FLOW:
            return f"{node.op_type} is control flow"
        if node.op_type in RANDOM:
            return f"{node.op_type} draws random numbers"
        return f"no meaning for operator {node.op_type} yet"
    return f"no meaning for operator {node.op_type} of domain {node.domain}"


def captured(node: onnx.NodeProto) -> list[str]:
    """The outer values that the subgraphs of a node use, in order."""
    found: dict[str, None] = {}
    for graph in _subgraphs(node):
        made = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        made |= {tensor.values.name for tensor in graph.sparse_initializer}
        for inner in graph.node:
            for name in [*inner.input, *captured(inner)]:
                if name and name not in made:
                    found[name] = None
            made.update(inner.output)
        found.update((value.name, None) for value in graph.output if value.name and value.name not in made)
    return list(found)


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def attribute_texts(node: onnx.NodeProto, position: int) -> tuple[str, ...]:
    """What tells two boundaries of one operator apart: attributes, and the place where two runs may differ."""
    texts = [f"{a.name}:{hashlib.sha256(a.SerializeToString()).hexdigest()[:16]}" for a in node.attribute]
    alone = node.op_type in RANDOM or node.domain not in ("", "ai.onnx") or any(_subgraphs(node))
    return (node.domain, *sorted(texts), *((f"#{position}",) if alone else ()))


@dataclass(frozen=True)
class Surroundings:
    """What a node needs of its model to stand alone."""

    opsets: Sequence[onnx.OperatorSetIdProto]
    functions: Sequence[onnx.FunctionProto]
    ir_version: int

    def model(
        self,
        node: onnx.NodeProto,
        inputs: Sequence[onnx.ValueInfoProto],
        outputs: Sequence[onnx.ValueInfoProto],
        known: Sequence[onnx.TensorProto] = (),
    ) -> onnx.ModelProto:
        """A model of one node."""
        graph = onnx.helper.make_graph([node], "one_node", list(inputs), list(outputs), list(known))
        model = onnx.helper.make_model(graph, opset_imports=list(self.opsets), functions=list(self.functions))
        model.ir_version = self.ir_version
        return model


    def is_valid(self, node: onnx.NodeProto) -> bool:
        """Whether a node is what its schema says; true where there is no schema but a function of the model."""
        if any(canonical(f.domain) == canonical(node.domain) and f.name == node.op_type for f in self.functions):
            return True
        context = onnx.checker.C.CheckerContext()
        context.ir_version = self.ir_version
        context.opset_imports = {entry.domain: entry.version for entry in self.opsets}
        try:
            onnx.checker.check_node(node, context)
        except (onnx.checker.ValidationError, RuntimeError, ValueError, TypeError):
            return False
        return True


class Outcome:
    """The types of a boundary's outputs: ONNX's inference on the node alone, then what the model declares."""

    def __init__(self, values: Values, declared: Mapping[str, onnx.TypeProto], around: Surroundings) -> None:
        self.values, self.declared, self.around = values, declared, around

    def of(self, node: onnx.NodeProto, inputs: Sequence[str]) -> list[tuple[DType, Shape]]:
        """For each output its dtype and shape; DType.OTHER where either is unknown."""
        spelt: dict[str, Dim] = {}
        inferred = self._inferred(node, inputs, spelt)
        return [self._one(inferred.get(name), self.declared.get(name), spelt) for name in node.output]

    def _inferred(self, node: onnx.NodeProto, names: Sequence[str], spelt: dict[str, Dim]) -> dict[str, onnx.TypeProto]:
        if not self.around.is_valid(node):  # on a node that lacks an input, ONNX's inference ends the process
            return {}
        known, inputs = [], []
        for name in dict.fromkeys(names):
            contents = self.values.contents.get(name)
            if contents is not None and contents.integers is not None:
                shape = [len(contents.dims)] if contents.rank else []
                known.append(onnx.helper.make_tensor(name, contents.dtype.onnx, shape, contents.integers))
            else:
                inputs.append(onnx.helper.make_value_info(name, self._type(name, spelt)))
        model = self.around.model(node, inputs, [], known)
        try:
            result = onnx.shape_inference.infer_shapes(model, data_prop=True)
        except (onnx.shape_inference.InferenceError, RuntimeError, ValueError, TypeError):
            return {}
        return {value.name: value.type for value in result.graph.value_info}

    def _type(self, name: str, spelt: dict[str, Dim]) -> onnx.TypeProto:
        if name not in self.values.by_name and name not in self.values.contents:
            return self.declared.get(name, onnx.TypeProto())
        node = self.values.node(name)
        if node.dtype is DType.OTHER:
            return self.declared.get(name, onnx.TypeProto())
        dims: list[int | str | None] = []
        for dim in node.shape:
            if dim.constant is None:
                spelt[f"noyau {dim}"] = dim
            dims.append(dim.constant if dim.constant is not None else f"noyau {dim}")
        return onnx.helper.make_tensor_type_proto(node.dtype.onnx, dims)

    def _one(
        self, inferred: onnx.TypeProto | None, declared: onnx.TypeProto | None, spelt: Mapping[str, Dim]
    ) -> tuple[DType, Shape]:
        said = [kind for kind in (inferred, declared) if kind is not None and kind.HasField("tensor_type")]
        tensors = [kind.tensor_type for kind in said]
        dtype = next((found for found in (from_onnx(t.elem_type) for t in tensors) if found), DType.OTHER)
        shapes = [tensor.shape.dim for tensor in tensors if tensor.HasField("shape")]
        if dtype is DType.OTHER or not shapes:
            return DType.OTHER, ()
        alike = [shape for shape in shapes if len(shape) == len(shapes[0])]
        return dtype, tuple(self._dim(dims, spelt) for dims in zip(*alike, strict=True))

    def _dim(self, said: Sequence[onnx.TensorShapeProto.Dimension], spelt: Mapping[str, Dim]) -> Dim:
        """The first extent that is known. A declared 0 says nothing: exporters write it for what they do not know."""
        for dim in said:
            if dim.dim_value > 0:
                return Dim.of(dim.dim_value)
            if dim.dim_param in spelt:
                return spelt[dim.dim_param]
            if dim.dim_param and not dim.dim_param.startswith("unk__"):
                return self.values.sizes.named(dim.dim_param)
        return self.values.sizes.fresh()


class Boundary:
    """Runs one node: by ONNX's reference evaluator, or where that cannot by `run`."""

    def __init__(self, node: onnx.NodeProto, names: Sequence[str], around: Surroundings, run: Run | None) -> None:
        self._node, self._names, self._around, self._run = node, tuple(names), around, run
        self._evaluator: Any = None

    def __call__(self, *operands: Any) -> tuple[Any, ...]:
        """The results of the named outputs; UnsupportedError where nothing here can run the node."""
        feeds = dict(zip(self._names, operands, strict=True))
        wanted = [name for name in self._node.output if name]
        if self._node.op_type == "MatMul" and self._node.domain == "":
            return (np.matmul(*operands),)
        try:
            return tuple(self._reference().run(wanted, feeds))
        except _FAULTS as fault:
            if self._run is None:
                raise UnsupportedError(
                    f"the interpreter cannot run {self._node.op_type}: {fault}; give onnxruntime as `run`"
                ) from fault
        return tuple(self._run(self._model(feeds), feeds))

    def _reference(self) -> Any:
        if self._evaluator is None:
            from onnx.reference import ReferenceEvaluator

            self._evaluator = ReferenceEvaluator(self._model({}))
        return self._evaluator

    def _model(self, feeds: Mapping[str, np.ndarray]) -> onnx.ModelProto:
        """The node alone; with the types of the inputs where arrays are given."""
        names = dict.fromkeys(self._names)
        inputs = [onnx.helper.make_value_info(name, _array_type(feeds.get(name))) for name in names]
        outputs = [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in self._node.output if name]
        return self._around.model(self._node, inputs, outputs)


def _array_type(array: np.ndarray | None) -> onnx.TypeProto:
    if not isinstance(array, np.ndarray):
        return onnx.TypeProto()
    return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def matmul_shape(left: Shape, right: Shape, broadcast: Callable[[Sequence[Shape]], Shape]) -> Shape:
    """The shape of a matrix product, as NumPy has it."""
    if not left or not right:
        raise UnsupportedError("MatMul takes no scalars")
    batch = broadcast([left[:-2], right[:-2]])
    return (*batch, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))
