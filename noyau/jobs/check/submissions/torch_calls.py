"""Calls of references and submissions: nests of tensors, memory that holds nothing yet."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from noyau.errors import RaisedError, UnsupportedError
from noyau.hosts.torch.tensors import array_of
from noyau.sanitizer.scripts.triton_host import EMPTY
from noyau.workers.worker import spent_s


class Pace:
    """The time that trials of more and more cells may take together, by what those before have taken."""

    def __init__(self, time_s: float) -> None:
        self.start_s = spent_s()
        self.end_s = self.start_s + time_s
        self.costs_s: list[float] = []
        self.cells = 1  # of the last one

    def allows(self, cells: int) -> bool:
        """Whether there is time for a call on so many cells, which then begins; for the first one there is."""
        fixed_s = min(self.costs_s, default=0.0)  # of a call, whatever its size
        grown = (cells / self.cells) ** 1.5  # as a product of matrices grows
        expected_s = fixed_s + (self.costs_s[-1] - fixed_s) * grown if self.costs_s else 0.0
        self.start_s = spent_s()
        return self.start_s + expected_s <= self.end_s

    def note(self, cells: int, calls: int = 1) -> None:
        """Note the end of calls on so many cells."""
        self.costs_s.append((spent_s() - self.start_s) / calls)
        self.cells = max(1, cells)


class Poison(TorchFunctionMode):  # type: ignore[misc]
    """Within, what torch.empty makes holds one byte everywhere."""

    def __init__(self, byte: int) -> None:
        super().__init__()
        self.byte = byte

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in EMPTY and isinstance(result, torch.Tensor):
            poison(result, self.byte)
        return result


def poison(tensor: torch.Tensor, byte: int) -> None:
    """Fill the memory of a tensor, which torch is not told of: its version stays."""
    with torch._C.DisableTorchFunction():
        storage = tensor.untyped_storage()
        if storage.nbytes() and storage.device.type == "cpu":
            ctypes.memset(storage.data_ptr(), byte, storage.nbytes())


def tensors_in(data: Any) -> list[torch.Tensor]:
    """The tensors of a nest, in order."""
    return [each for each in tree_flatten(data)[0] if isinstance(each, torch.Tensor)]


def with_tensors(data: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """The same nest, with these tensors in it."""
    leaves, shape = tree_flatten(data)
    waiting = iter(tensors)
    return tree_unflatten([next(waiting) if isinstance(each, torch.Tensor) else each for each in leaves], shape)


def plain_arrays(results: Any) -> list[np.ndarray]:
    """The results of a call as arrays, packed; a number is one of no axes. UnsupportedError for
    a dtype that is not compared, RaisedError for what is neither."""
    arrays = []
    for each in tree_flatten(results)[0]:
        if isinstance(each, torch.Tensor):
            if each.layout is not torch.strided or each.is_complex() or each.is_quantized:
                raise UnsupportedError(f"results of the kind {each.dtype}, {each.layout} are not compared")
            arrays.append(np.asarray(array_of(each.detach().resolve_neg()), order="C"))
        elif isinstance(each, bool | int | float | np.ndarray | np.generic):
            arrays.append(np.asarray(each))
        else:
            raise RaisedError(f"it returned {type(each).__name__}, and no tensor")
    return arrays


def reach(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses that a tensor lies in."""
    with torch._C.DisableTorchFunction():
        steps = (step * (extent - 1) for step, extent in zip(tensor.stride(), tensor.shape, strict=True))
        cells = sum(steps) + 1 if tensor.numel() else 0
        return tensor.data_ptr(), tensor.data_ptr() + cells * tensor.element_size()


def aliases(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[list[int]]:
    """The places of each result and input that may share memory."""
    pairs = product(enumerate(map(reach, results)), enumerate(map(reach, inputs)))
    return [[at, to] for (at, (start, end)), (to, (begin, stop)) in pairs if start < stop and begin < end]
