"""GPU memory for trial runs of a kernel, and checks of it, whose answers come to the host together, since each transfer
would wait for all work of the GPU."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noyau.errors import FindingKind
from noyau.frontends.torch.tensors import FROM_TORCH
from noyau.hosts.torch.tensors import array_of
from noyau.toolchain.guard_zones import poison_of

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class Fault:
    """A defect that runs between guards may show."""

    kind: FindingKind
    note: str


Flag = tuple[Fault, Tensor]  # a fault, and whether it occurred


def bits_of(tensor: Tensor) -> Tensor:
    """The cells of a tensor in the order of its axes, as integers."""
    return tensor.contiguous().reshape(-1).view(_BITS[tensor.element_size()])


def differ(one: Tensor, other: Tensor) -> Tensor:
    """Whether two tensors of one dtype and shape hold other bits."""
    return (bits_of(one) != bits_of(other)).any()


def answers(flags: Sequence[Flag]) -> list[Fault]:
    """The faults that occurred."""
    if not flags:
        return []
    there = torch.stack([flag for _, flag in flags]).tolist()
    return [fault for (fault, _), is_there in zip(flags, there, strict=True) if is_there]


def to_host(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Tensors of one device as arrays on the host."""
    if not tensors or tensors[0].device.type == "cpu":
        return [array_of(each) for each in tensors]
    sizes = [each.numel() * each.element_size() for each in tensors]
    together = torch.cat([bits_of(each).view(torch.uint8) for each in tensors]).cpu()
    pieces = zip(together.split(sizes), tensors, strict=True)
    return [array_of(piece.clone().view(each.dtype).reshape(each.shape)) for piece, each in pieces]


def holds_poison(tensor: Tensor, which: int) -> Tensor:
    """Mask of the cells of a tensor, in the order of its axes, that have the bits of a poison of its dtype."""
    return bits_of(tensor) == _poison_bits(tensor.dtype, which)


def _poison_bits(dtype: torch.dtype, which: int) -> int:
    return int(np.frombuffer(poison_of(FROM_TORCH[dtype], which), f"i{dtype.itemsize}")[0])


class Room:
    """An allocator of results whose cells hold a poison, with guard zones before and behind."""

    around = 64  # cells

    def __init__(self, poison: int) -> None:
        self.poison, self.rooms = poison, list[Tensor]()

    def empty(self, shape: tuple[int, ...], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Like torch.empty, with poisoned cells between guard zones."""
        cells = torch.Size(shape).numel()
        room = torch.empty(cells + 2 * self.around, dtype=dtype, device=device)
        bits_of(room).fill_(_poison_bits(dtype, self.poison))
        self.rooms.append(room)
        return room[self.around : self.around + cells].view(shape)

    def flags(self) -> Iterator[Flag]:
        """Flags of writes into the guard zones."""
        for room in self.rooms:
            bits, poison = bits_of(room), _poison_bits(room.dtype, self.poison)
            for side, ends in (("before", bits[: self.around]), ("behind", bits[-self.around :])):
                yield Fault(FindingKind.OUT_OF_BOUNDS, f"wrote {side} an output"), (ends != poison).any()
