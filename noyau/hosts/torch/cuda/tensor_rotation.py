"""Tensors that are new each time: sets of them on a device, whose values change before they come again."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from noyau.timing.sides import refuse_unlike

Tensors = tuple[torch.Tensor, ...]
SETS = 2  # of a side: no call has the memory of the call before
_CELLS = 3
_STRETCH = 64  # a change renews about one cell in so many, and brings no more into the cache


@dataclass(frozen=True, slots=True)
class SetRenewal:
    """Renewal of one set: for each piece the tensor, the first cell, the number of cells, and the draw to copy from."""

    pieces: tuple[tuple[int, int, int, int], ...]

    def apply(self, tensors: Sequence[torch.Tensor], sources: Sequence[Sequence[torch.Tensor]]) -> None:
        """Enqueue the copies."""
        for number, start, count, source in self.pieces:
            flat_of(tensors[number])[start : start + count] = flat_of(sources[source][number])[start : start + count]


class TensorRotation:
    """Sets of tensors, used in turn, as `fresh.Rotation` has arrays: each cell of a set is the cell of some draw at the
    same place, so that indices, masks and the like stay valid. InputError where draws are unlike, or fewer than two."""

    def __init__(self, draws: Sequence[Sequence[torch.Tensor]], rng: np.random.Generator, sets: int = SETS) -> None:
        refuse_unlike(draws, lambda each: (each.shape, each.dtype, each.stride(), each.device))
        self.rng, self.next = rng, 0
        self.sources = [tuple(map(alike, draw)) for draw in draws]
        self.sets: list[Tensors] = [tuple(map(alike, draws[k % len(draws)])) for k in range(sets)]

    def turn(self) -> tuple[int, SetRenewal]:
        """The number of the next set, and its renewal."""
        number, self.next = self.next, (self.next + 1) % len(self.sets)
        pieces = [piece for at, tensor in enumerate(self.sets[number]) for piece in self._pieces(at, tensor)]
        return number, SetRenewal(tuple(pieces))

    def _pieces(self, at: int, tensor: torch.Tensor) -> list[tuple[int, int, int, int]]:
        cells, draw = len(flat_of(tensor)), self.rng.integers
        counts = [1] * _CELLS + [max(cells // _STRETCH, 1)] if cells else []
        return [(at, int(draw(cells - count + 1)), count, int(draw(len(self.sources)))) for count in counts]


def flat_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that a tensor spans, along one axis, from its first cell to its last."""
    if not tensor.numel():
        return tensor.reshape(-1)
    span = 1 + sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((span,), (1,))


def alike(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, of memory of its own."""
    return flat_of(tensor.detach()).clone().as_strided(tensor.shape, tensor.stride(), 0)


def poison(tensors: Sequence[torch.Tensor]) -> None:
    """Overwrite memory, so that each cell has to be written again."""
    for tensor in tensors:
        flat = flat_of(tensor)
        flat.view(torch.uint8).fill_(0xA5) if flat.dtype is not torch.bool else flat.fill_(True)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one shape hold the same bits."""
    if one.dtype is not other.dtype or one.shape != other.shape:
        return False
    return bool(torch.equal(*(each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other))))


def shares_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the spans of two tensors overlap in memory."""
    (a, b), (c, d) = _span(one), _span(other)
    return one.device == other.device and max(a, c) < min(b, d)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    return start, start + len(flat_of(tensor)) * tensor.element_size()


def result_tensors(result: object) -> tuple[Tensors, str]:
    """The tensors that a call returned, and a fault if it returned anything else."""
    parts = tuple(result) if isinstance(result, tuple | list) else (result,)
    for part in parts:
        if type(part) not in (torch.Tensor, torch.nn.Parameter):  # a subclass may do its work when it is read
            return (), f"it returned {type(part).__name__}, not a tensor: what is left to do later is not timed"
    return tuple(part.detach() for part in parts if isinstance(part, torch.Tensor)), ""
