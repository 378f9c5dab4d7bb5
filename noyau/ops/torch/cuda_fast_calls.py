"""Doors for tensors on a GPU: what was launched for tensors of these shapes before is launched again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from noyau.errors import InputError
from noyau.frontends.torch.dtypes import TO_TORCH
from noyau.hosts.numpy.fast_calls import MISS, Argument, read_argument
from noyau.hosts.torch.tensors import array_like, array_of
from noyau.kernels.programs.generate import BuiltProgram
from noyau.ops.torch.program_runner import host

_PLAIN = (torch.Tensor, torch.nn.Parameter)
MOST = 1024  # kinds of calls whose launches are kept
MOST_SCALARS = 64
_ALIGNED = 15


class DeviceDoor:
    """A built program on tensors of a GPU: `door(arguments)` takes a tuple of them, and Python numbers where `ends`
    says so, and gives a new tensor, or a tuple of several; MISS where an argument is not as `ends` says, sizes are
    refused, or launches run for them that its certificate is not of. A tensor without axes may lie on the CPU."""

    def __init__(self, built: BuiltProgram, ends: Sequence[Argument], called: str, tiles: Mapping[str, int]) -> None:
        self.ends, self.called = tuple(ends), called
        self.device = torch.device(built.generated.wanted.device)
        self.run, self.generated = host(built, tiles), built.generated
        self.known: dict[Any, Callable[..., tuple[torch.Tensor, ...]]] = {}
        self.scalars: dict[Any, torch.Tensor] = {}
        self.repeats = all(end.equals is None for end in self.ends)  # else a cell says which kernel it is

    def __call__(self, arguments: tuple[Any, ...]) -> Any:
        kinds: list[Any] = []
        are_tensors = True
        for each in arguments:
            if type(each) in _PLAIN:
                place = each.data_ptr()  # 0 of no cells, and of zeros that torch keeps no memory for
                whole = not place & _ALIGNED if place else None
                kinds.append((each.get_device(), each.dtype, each.shape, each.stride(), whole))
            else:
                are_tensors = False
                kinds.append(type(each))
        key = tuple(kinds)
        plan = self.known.get(key)
        if plan is None:
            return self.anew(arguments, key)
        given: Any = arguments if are_tensors else self.read(arguments, looked_at=True)
        if given is None or plan is missed:
            return MISS
        made = plan(given)
        return made[0] if len(made) == 1 else made

    def anew(self, arguments: tuple[Any, ...], key: Any) -> Any:
        """The same where nothing is known yet."""
        given = self.read(arguments)
        if given is None:
            return MISS
        try:
            if not self.generated.certified_at(self.sizes(given)):
                self.keep(key, missed)
                return MISS
            results, plan = self.run.followed(given)
        except InputError:
            return MISS
        there = all(each.device == self.device for each in arguments if isinstance(each, torch.Tensor))
        if self.repeats and there:
            self.keep(key, plan or self.hosted)
        return results[0] if len(results) == 1 else tuple(results)

    def keep(self, key: Any, plan: Callable[..., tuple[torch.Tensor, ...]]) -> None:
        """Keep what is called for tensors like these from now on."""
        self.known = {**(self.known if len(self.known) < MOST else {}), key: plan}

    def sizes(self, tensors: Sequence[torch.Tensor]) -> Mapping[str, int]:
        """The sizes of a call with these tensors. InputError where they do not fit together."""
        return {**self.generated.wanted.sizes, **self.generated.graph.bind([tensor.shape for tensor in tensors])}

    def hosted(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """A program of several steps, on tensors that were looked at."""
        return tuple(self.run(*[tensor.detach() if tensor.requires_grad else tensor for tensor in tensors]))

    def insist(self, arguments: tuple[Any, ...]) -> Any:
        """The results, or an error that says why there are none."""
        given = self.read(arguments)
        if given is None:
            raise InputError(f"{self.called}: these tensors are not as its kernel was made for them")
        results = self.run(*given)
        return results[0] if len(results) == 1 else tuple(results)

    def read(self, arguments: tuple[Any, ...], *, looked_at: bool = False) -> list[torch.Tensor] | None:
        """The arguments as tensors on the device, or None where one does not fit; `looked_at`: tensors do."""
        if len(arguments) != len(self.ends):
            return None
        found = []
        for end, each in zip(self.ends, arguments, strict=True):
            is_known = looked_at and isinstance(each, torch.Tensor)
            made = each if is_known else self.tensor(end, each)
            if made is None:
                return None
            found.append(made)
        return found

    def tensor(self, end: Argument, each: Any) -> torch.Tensor | None:
        """An argument as a tensor on the device, or None where it does not fit."""
        if isinstance(each, np.ndarray | np.generic):
            return None
        if not isinstance(each, torch.Tensor):
            return self.scalar(end, each)
        is_there = each.device == self.device or not each.dim()
        if type(each) not in _PLAIN or each.is_neg() or each._is_zerotensor() or not is_there:
            return None
        there = array_of(each.cpu()) if end.equals is not None else array_like(each)
        return None if read_argument(end, there) is None else each.detach().to(self.device)

    def scalar(self, end: Argument, number: Any) -> torch.Tensor | None:
        """A Python number as a tensor, which waits for the next call with that number on this stream. A CUDA graph that
        is captured gets one of its own, for it outlives what waits here."""
        if self.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return filled(end, number, self.device)
        spelt = number.hex() if isinstance(number, float) else number
        key = (end.dtype, type(number), spelt, current_stream(self.device))
        found = self.scalars.get(key)
        if found is None:
            found = filled(end, number, self.device)
            if found is not None:
                self.scalars = {**(self.scalars if len(self.scalars) < MOST_SCALARS else {}), key: found}
        return found


def missed(_: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Stands for what is certified by another program."""
    raise NotImplementedError("a door misses such tensors before it calls anything")


def filled(end: Argument, number: Any, device: torch.device) -> torch.Tensor | None:
    """A Python number as a tensor, or None where it does not fit."""
    read = read_argument(end, number)
    return None if read is None else torch.full((), read.item(), dtype=TO_TORCH[end.dtype], device=device)


def current_stream(device: torch.device) -> int:
    """The number of the current stream of a device."""
    return int(torch.cuda.current_stream(device).cuda_stream) if device.type == "cuda" else 0
