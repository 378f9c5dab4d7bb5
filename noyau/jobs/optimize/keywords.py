"""The keyword arguments of `noyau.optimize`, with their types: the fields of options but `inputs`, each optional."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from noyau.hosts.onnxruntime.inputs import Dims
from noyau.hosts.onnxruntime.subgraph import Between
from noyau.ops.op import Op


class ModelKeywords(TypedDict, total=False):
    """For an ONNX model in onnxruntime: the fields of jobs/optimize/onnx/options.py."""

    keep: str
    dims: Dims
    target: str
    threads: int
    budget_s: float
    within_s: float
    fresh: bool
    tune: bool | None
    seed: int
    only: Sequence[str]
    drop: Sequence[str]
    between: Between | None
    ops: Sequence[str | Op[Any, Any]]


class CompileKeywords(TypedDict, total=False):
    """For a graph of torch: the fields of jobs/optimize/torch/options.py."""

    rest: str
    against: str | None
    budget_s: float
    keep: str
    certificate: str
    graphs: bool
    prompt: bool


class ModuleKeywords(CompileKeywords, total=False):
    """For a module of torch: `dynamic` as torch.compile has it."""

    dynamic: bool | None


class HostedKeywords(ModuleKeywords, total=False):
    """For an ONNX model that torch hosts, beside the device."""

    dims: Mapping[str, int]
    seed: int
