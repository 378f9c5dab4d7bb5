"""An ONNX model as a module of torch: its nodes by the tables of onnx_operators, its shapes as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Unpack

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from noyau.errors import InputError, UnsupportedError
from noyau.frontends import onnx as frontend
from noyau.frontends.onnx.function_bodies import opsets_of
from noyau.frontends.onnx.tensors import array_of
from noyau.frontends.onnx_messages import core
from noyau.hosts.onnxruntime.inputs import ModelInputs, model_inputs
from noyau.hosts.torch.cuda.device import missing_device
from noyau.hosts.torch.modules.onnx_operators import NodeCall, Value, run
from noyau.hosts.torch.tensors import tensor_of
from noyau.jobs.optimize.torch.options import ModuleKeywords
from noyau.jobs.optimize.torch.run import OptimizedModule, optimize
from noyau.text import printable

_OF_MICROSOFT = ("Gelu", "SimplifiedLayerNormalization")  # with the meaning of the tables' operators of that name
_DRAWN = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
MOST_SHAPES = 32  # the most sets of input shapes for which a model is cached with its kernels
FIRST = ("these are the first of several samples: a module of torch is made for their sizes, the others are not used",)
_SMALL = 256  # the most cells of integers that are taken for shapes: they stay on the host until a tensor needs them


@dataclass(slots=True)
class HostedModel:
    """An ONNX model that runs on torch: call it with its inputs, in order or by name, as tensors or arrays; it returns
    a list of its outputs, tensors on the device. Inputs of other shapes compile it again; a few results are cached."""

    host: TorchModel
    device: torch.device
    options: ModuleKeywords
    notes: tuple[str, ...]
    modules: dict[tuple[Any, ...], OptimizedModule] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def __call__(self, *args: Any, **named: Any) -> list[torch.Tensor]:
        inputs = self.host.in_order(args, named, self.device)
        return list(self.of(inputs)(*inputs))

    def of(self, inputs: Sequence[torch.Tensor]) -> OptimizedModule:
        """The model with its kernels for inputs of these shapes."""
        key = tuple((tuple(each.shape), each.dtype) for each in inputs)
        with self.lock:
            if key in self.modules:
                if self.modules[key] is not self.first:  # the least recently used is evicted first
                    self.modules[key] = self.modules.pop(key)
                return self.modules[key]
        result = optimize(self.host.module(inputs), tuple(inputs), **self.options)
        with self.lock:
            result = self.modules.setdefault(key, result)  # another thread may have been first
            if len(self.modules) > MOST_SHAPES:  # the first has the shapes of the optimisation, and stays
                del self.modules[list(self.modules)[1]]
        return result

    @property
    def first(self) -> OptimizedModule:
        """The module for the inputs that the model was optimised with."""
        return next(iter(self.modules.values()))

    @property
    def report(self) -> Any:
        """Report on the model for the inputs that it was optimised with."""
        return self.first.report

    def source(self, kernel: str) -> str:
        """The text of a kernel, as noyau.jobs.optimize.torch.run.OptimizedModule.source."""
        return self.first.source(kernel)

    def save(self, path: str | Path) -> None:
        """Write the model for inputs of the shapes that it was optimised with; noyau.load reads it."""
        self.first.save(path)


@dataclass(frozen=True, slots=True)
class TorchModel:
    """A model, its nodes and its tensors: floats on the device, small integers as arrays."""

    name: str
    nodes: tuple[Any, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, Value]
    opsets: Mapping[str, int]
    device: torch.device

    def in_order(self, args: Sequence[Any], named: Mapping[str, Any], device: torch.device) -> list[torch.Tensor]:
        """The inputs of a call, on the device and in order. InputError if one is missing or unknown."""
        known = dict(zip(self.inputs, args, strict=False)) | dict(named)
        wrong = sorted(set(named) - set(self.inputs)) or sorted(set(self.inputs) - set(known))
        if wrong or len(args) > len(self.inputs):
            message = ", ".join(map(printable, self.inputs))
            what = f"{printable(wrong[0])} is missing or unknown" if wrong else f"{len(args)} are given"
            raise InputError(f"{self.name} has the inputs {message}, and {what}")
        values = (known[name] for name in self.inputs)
        return [(each if isinstance(each, torch.Tensor) else tensor_of(np.asarray(each))).to(device) for each in values]

    def module(self, inputs: Sequence[torch.Tensor]) -> torch.nn.Module:
        """The model for inputs of some shapes, as torch's own operators. UnsupportedError for a node without an
        equivalent in torch, or with a shape that depends on values."""
        with torch.no_grad():
            result: torch.nn.Module = make_fx(self.run)(*inputs)
        type(result).__name__ = self.name  # a class of its own, whose name reports show
        return result

    def run(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        values: dict[str, Value] = {**self.tensors, **dict(zip(self.inputs, tensors, strict=True))}
        for node in self.nodes:
            operands = [self.value(values, name) if name else None for name in node.input]
            values.update(zip(node.output, self.results_of(node, operands), strict=False))
        results = [self.value(values, name) for name in self.outputs]
        return [tensor_of(each).to(self.device) if isinstance(each, np.ndarray) else each for each in results]

    def value(self, values: Mapping[str, Value], name: str) -> Value:
        """A value by its name. UnsupportedError for a later result of a node of which torch computes the first only."""
        if name in values:
            return values[name]
        giver = next((printable(node.op_type) for node in self.nodes if name in node.output), "no node")
        raise UnsupportedError(f"{printable(name)}, a result of {giver}, is not made where torch hosts a model")

    def results_of(self, node: Any, inputs: list[Value]) -> Sequence[Value]:
        """Evaluate a node; on the host if all its inputs are known shapes and numbers."""
        domain, numbers = core(node.domain), attributes(node)
        if node.op_type in _DRAWN or (domain == "com.microsoft" and node.op_type not in _OF_MICROSOFT):
            message = printable(f"{domain}::{node.op_type}" if domain else node.op_type)
            raise UnsupportedError(f"{message} has no function of torch in noyau")
        if node.op_type in ("Shape", "Size") and isinstance(inputs[0], torch.Tensor):
            shape = np.array(inputs[0].shape, np.int64)
            cut = shape[numbers.get("start", 0) : numbers.get("end", len(shape))]
            return (cut,) if node.op_type == "Shape" else (np.array(int(np.prod(shape)), np.int64),)
        if not any(isinstance(each, torch.Tensor) for each in inputs):
            return on_host(node, inputs, self.opsets)
        if domain not in ("", "com.microsoft"):
            raise UnsupportedError(f"{printable(domain)}::{printable(node.op_type)} has no function of torch in noyau")
        return run(NodeCall(node.op_type, inputs, numbers, len(node.output), self.device))


def attributes(node: Any) -> dict[str, Any]:
    """The attributes of a node by name; strings as str."""
    import onnx

    entries = ((each.name, onnx.helper.get_attribute_value(each)) for each in node.attribute)
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in entries}


def on_host(node: Any, inputs: Sequence[Value], opsets: Mapping[str, int]) -> list[np.ndarray]:
    """Evaluate a node on arrays, by ONNX's own evaluator."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    names = {name: each for name, each in zip(node.input, inputs, strict=True) if isinstance(each, np.ndarray)}
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in names.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "node", values, outputs)
    known = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    result = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=known)).run(None, names)
    return [np.asarray(each) for each in result]


def optimize_model(
    path: str | Path,
    device: str,
    dims: Mapping[str, int] | None = None,
    inputs: str | Path | None = None,
    seed: int = 0,
    **options: Unpack[ModuleKeywords],
) -> HostedModel:
    """An ONNX model hosted by torch on a device, with kernels where they are right and win.

    `dims` and `inputs` as in noyau.jobs.optimize.onnx.options.OptimizeOptions, with one number per size, or an .npz
    file; `options` are those of modules. ModelError for a file that is no model, InputError for inputs that do not fit
    or a missing device, UnsupportedError for a node without an equivalent in torch."""
    where, path = device_of_name(device), Path(path)
    host, feeds = host_model(path, where, dims or {}, inputs, seed)
    result = HostedModel(host, where, options, feeds.full.notes + FIRST * bool(feeds.others))
    result.of(host.in_order((), feeds.full.arrays, where))
    return result


def device_of_name(device: str) -> torch.device:
    """A device by its name. InputError if there is none of that name."""
    try:
        result = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"device={printable(device)} is no device of torch's: cuda, cuda:1 and cpu are") from error
    if result.type == "cuda" and result.index is None:
        result = torch.device("cuda", 0)
    if lacks := missing_device(result):
        raise InputError(f"device={printable(device)}: {lacks}")
    return result


def host_model(
    path: Path, device: torch.device, dims: Mapping[str, int], inputs: str | Path | None, seed: int
) -> tuple[TorchModel, ModelInputs]:
    """A model in the form that torch runs, and its inputs."""
    model = frontend.read(path)
    imported = frontend.import_model(model, path.parent)
    feeds = model_inputs(imported, [imported.graph], dims, inputs, seed)
    tensors = {each.name: place_tensor(each, path.parent, device) for each in model.graph.initializer}
    names = tuple(each.name for each in model.graph.input if each.name not in tensors)
    outputs = tuple(each.name for each in model.graph.output)
    opsets = opsets_of(list(model.opset_import))
    return TorchModel(path.name, tuple(model.graph.node), names, outputs, tensors, opsets, device), feeds


def place_tensor(tensor: Any, folder: Path, device: torch.device) -> Value:
    """A tensor of the model where it is used: a possible shape stays an array. UnsupportedError for other types."""
    array = array_of(tensor, folder)
    if array is None:
        raise UnsupportedError(f"the initializer {printable(tensor.name)} is of a type that torch is not given here")
    return array if array.dtype.kind in "iub" and array.size <= _SMALL else tensor_of(np.array(array)).to(device)
