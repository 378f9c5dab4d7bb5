"""An op that stands for a path of a model: the ends that its file names, its kernel in C, and its signature there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noyau.codegen.language import LANGUAGES
from noyau.dtypes import DType
from noyau.errors import InputError, NoyauError
from noyau.ir.graph import Graph
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.op import Op
from noyau.signatures.types import Instance
from noyau.text import printable

WHERE = "BETWEEN"  # what a file calls the ends of its path


def ends_of_op(op: Op[Any, Any]) -> tuple[Sequence[str], Sequence[str]]:
    """The ends of the path that an op was extracted from. InputError where its file does not name them."""
    ends = op.reference.__globals__.get(WHERE)
    message = f'{op.name} does not say where it lies in the model: its file needs {WHERE} = (["A"], ["C"])'
    match ends:
        case ((tuple() | list()) as sources, (tuple() | list()) as results):
            names = [*sources, *results]
        case _:
            raise InputError(message)
    if not all(isinstance(name, str) for name in names):
        raise InputError(message)
    return sources, results


def kernel_of(op: Op[Any, Any]) -> UserKernel:
    """The kernel in C that was attached last. InputError where there is none, or where a model cannot have it."""
    kernels = [kernel for kernel in op.kernels.values() if LANGUAGES[kernel.language].is_native]
    if not kernels:
        names = ", ".join(f"{kernel.name}[{kernel.language}]" for kernel in op.kernels.values()) or "none"
        raise InputError(
            f'{op.name} has no kernel in C (its kernels: {names}): {op.name}.kernel("{op.name}.c") attaches one'
        )
    if kernels[-1].usage.options.get("flags"):
        raise InputError(
            f"{kernels[-1].called} asks for flags, and all kernels of a model are built alike: leave them out"
        )
    return kernels[-1]


def instance_of(op: Op[Any, Any], graph: Graph) -> Instance:
    """The op as its path calls it. InputError where it does not take what that reads, or give what it makes."""
    try:
        instance = op.instance([node.dtype for node in graph.inputs], [len(node.shape) for node in graph.inputs])
    except NoyauError as error:
        reads = ", ".join(f"{printable(node.output)}: {_spell(node.dtype, len(node.shape))}" for node in graph.inputs)
        raise InputError(f"{op.name} does not fit its path, which reads {reads}: {error}") from error
    ends = instance.outputs, [graph[name] for name in graph.outputs]
    gives, makes = (", ".join(_spell(each.dtype, len(each.shape)) for each in values) for values in ends)
    if gives != makes:
        raise InputError(f"{op.name} does not fit its path: it gives {gives}, and the path makes {makes}")
    return instance


def _spell(dtype: DType, rank: int) -> str:
    return f"{dtype.value} of rank {rank}"
