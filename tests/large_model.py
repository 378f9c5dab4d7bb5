"""A model with gigabytes of external data that takes next to nothing on disk. Support for tests, not a test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

ROWS_ON_DISK = 2  # of each weight; the others are holes, which read as zero
DATA_FILE = "large.data"


@dataclass(frozen=True, slots=True)
class LargeModel:
    """The two files, and the sizes of the weights that the second holds."""

    path: Path
    data: Path
    weight_bytes: tuple[int, ...]

    @property
    def largest_bytes(self) -> int:
        return max(self.weight_bytes)

    @property
    def total_bytes(self) -> int:
        return sum(self.weight_bytes)


def write_large_model(
    folder: Path, *, layers: int = 1, hidden: int = 4096, intermediate: int = 65536, opset: int = 18
) -> LargeModel:
    """Write `large.onnx`, and beside it the sparse `large.data`: 3 GiB in three equal weights unless told otherwise.

    Each layer is x + MLP(RMSNorm(x)), the MLP a SwiGLU of three MatMuls, and a last RMSNorm follows:
    `hidden_states` f32[batch, sequence, hidden] -> `normed` of the same shape. The first rows of each weight are
    random, so that what flows through is not zero."""
    builder = Builder(hidden, intermediate)
    value = "hidden_states"
    for layer in range(layers):
        value = builder.layer(f"layers.{layer}", value)
    builder.rms_norm("norm", value, "normed")
    shape = ["batch", "sequence", hidden]
    graph = helper.make_graph(
        builder.nodes,
        "large",
        [helper.make_tensor_value_info("hidden_states", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("normed", TensorProto.FLOAT, shape)],
        builder.initializers,
    )
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=helper.find_min_ir_version_for(imports))
    path, data = folder / "large.onnx", folder / DATA_FILE
    path.write_bytes(model.SerializeToString())
    builder.write_data(data)
    return LargeModel(path, data, tuple(4 * rows * columns for rows, columns in builder.weights))


class Builder:
    """The nodes and initializers of the model, and the shapes of the weights in the order of the data file."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        self.hidden, self.intermediate = hidden, intermediate
        self.nodes: list[onnx.NodeProto] = []
        self.initializers = [
            onnx.numpy_helper.from_array(np.array(2.0, np.float32), "two"),
            onnx.numpy_helper.from_array(np.array(1e-6, np.float32), "epsilon"),
            onnx.numpy_helper.from_array(np.array([-1], np.int64), "last_axis"),
        ]
        self.weights: list[tuple[int, int]] = []

    def layer(self, name: str, value: str) -> str:
        """One layer; returns the name of its output."""
        normed = self.rms_norm(f"{name}.norm", value, f"{name}.normed")
        gate = self.matmul(f"{name}.gate", normed, self.hidden, self.intermediate)
        up = self.matmul(f"{name}.up", normed, self.hidden, self.intermediate)
        sigmoid = self.add("Sigmoid", [gate], f"{name}.sigmoid")
        silu = self.add("Mul", [gate, sigmoid], f"{name}.silu")
        product = self.add("Mul", [silu, up], f"{name}.product")
        down = self.matmul(f"{name}.down", product, self.intermediate, self.hidden)
        return self.add("Add", [value, down], f"{name}.residual")

    def rms_norm(self, name: str, value: str, output: str) -> str:
        weight = np.random.default_rng(len(self.nodes)).normal(1.0, 0.1, self.hidden).astype(np.float32)
        self.initializers.append(onnx.numpy_helper.from_array(weight, f"{name}.weight"))
        square = self.add("Pow", [value, "two"], f"{name}.square")
        mean = self.add("ReduceMean", [square, "last_axis"], f"{name}.mean", keepdims=1)
        shifted = self.add("Add", [mean, "epsilon"], f"{name}.shifted")
        root = self.add("Sqrt", [shifted], f"{name}.root")
        inverse = self.add("Reciprocal", [root], f"{name}.inverse")
        scaled = self.add("Mul", [value, inverse], f"{name}.scaled")
        return self.add("Mul", [f"{name}.weight", scaled], output)

    def matmul(self, name: str, value: str, rows: int, columns: int) -> str:
        self.initializers.append(external(f"{name}.weight", rows, columns, sum(4 * r * c for r, c in self.weights)))
        self.weights.append((rows, columns))
        return self.add("MatMul", [value, f"{name}.weight"], f"{name}.product")

    def add(self, operator: str, inputs: list[str], output: str, **attributes: int) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def write_data(self, path: Path) -> None:
        with path.open("wb") as file:
            for offset, rows in self.rows_on_disk():
                file.seek(offset)
                file.write(rows.tobytes())
        os.truncate(path, sum(4 * rows * columns for rows, columns in self.weights))

    def rows_on_disk(self) -> Iterator[tuple[int, np.ndarray]]:
        """The place in the file and the first rows of each weight."""
        offset = 0
        for at, (rows, columns) in enumerate(self.weights):
            yield offset, np.random.default_rng(at).normal(size=(min(rows, ROWS_ON_DISK), columns)).astype(np.float32)
            offset += 4 * rows * columns


def external(name: str, rows: int, columns: int, offset: int) -> TensorProto:
    """A float initializer whose bytes are in the data file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[rows, columns])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": DATA_FILE, "offset": offset, "length": 4 * rows * columns}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor
