"""Small ONNX models cut into groups and run: each group by the interpreter of kernels, the rest by ONNX's evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from noyau.compiler.partition.cut import Group, Partition, partition
from noyau.frontends.onnx import ImportedModel, import_model, partition_model
from noyau.ir.graph import Constant
from noyau.ir.loop_interpreter import run

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Fusing:
    """A model from text, `(float[n] x) => (float[n] y) { y = Abs(x) }`, and what the partition makes of it."""

    text: str
    opset: int = 18

    @cached_property
    def model(self) -> onnx.ModelProto:
        return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {self.opset}]> g {self.text}')

    @cached_property
    def imported(self) -> ImportedModel:
        return import_model(self.model)

    @cached_property
    def partition(self) -> Partition:
        return partition(partition_model(self.model, self.imported))

    @property
    def positions(self) -> list[tuple[int, ...]]:
        """The positions of each group, in order."""
        return [group.positions for group in self.partition.groups]

    def reason(self, producer: int, consumer: int | None = None) -> str:
        """Why two operators are not one kernel, or why one is in none."""
        (found,) = {cut.reason for cut in self.partition.cuts if (cut.producer, cut.consumer) == (producer, consumer)}
        return found

    def want(self, feeds: Arrays) -> list[np.ndarray]:
        """What the model gives as it is."""
        return [np.asarray(array) for array in ReferenceEvaluator(self.model).run(None, dict(feeds))]

    def got(self, feeds: Arrays) -> list[np.ndarray]:
        """What it gives with its groups as kernels."""
        values = {tensor.name: numpy_helper.to_array(tensor) for tensor in self.model.graph.initializer} | dict(feeds)
        groups = {position: group for group in self.partition.groups for position in group.positions}
        waiting = list(range(len(self.model.graph.node)))
        while waiting:
            ready = [p for p in waiting if set(self._reads(p, groups)) <= values.keys()]
            if not ready:  # what is left measures values that live within kernels, for kernels alone
                break
            done = groups[ready[0]].positions if ready[0] in groups else (ready[0],)
            values |= _of_group(groups[ready[0]], values) if ready[0] in groups else self._of_node(ready[0], values)
            waiting = [position for position in waiting if position not in done]
        return [values[output.name] for output in self.model.graph.output]

    def agrees(self, feeds: Arrays, tolerance: float = 1e-5) -> None:
        """Assert that both give the same."""
        for want, got in zip(self.want(feeds), self.got(feeds), strict=True):
            assert (want.dtype, want.shape) == (got.dtype, got.shape)
            np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=tolerance, atol=tolerance)

    def _reads(self, position: int, groups: Mapping[int, Group]) -> list[str]:
        if position in groups:
            return [name for name in groups[position].inputs if name not in _numbers(groups[position])]
        stand_ins = {name: other for group in groups.values() for name, other in group.stand_ins.items()}
        return [stand_ins.get(name, name) for name in self.model.graph.node[position].input if name]

    def _of_node(self, position: int, values: Arrays) -> Arrays:
        node, groups = self.model.graph.node[position], self.partition.groups
        stand_ins = {name: other for group in groups for name, other in group.stand_ins.items()}
        given = {name: values[stand_ins.get(name, name)] for name in node.input if name}
        made = ReferenceEvaluator(node, opsets={"": self.opset}).run(None, given)
        return dict(zip(node.output, map(np.asarray, made), strict=True))


def _numbers(group: Group) -> dict[str, np.ndarray]:
    """Numbers of the model that the kernel takes as inputs."""
    return {node.output: node.kind.value for node in group.original.nodes if isinstance(node.kind, Constant)}


def _of_group(group: Group, values: Arrays) -> Arrays:
    known = {**_numbers(group), **values}
    made = run(group.kernel, [np.asarray(known[name]) for name in group.inputs])
    return dict(zip(group.outputs, made, strict=True))
