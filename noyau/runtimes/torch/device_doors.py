"""Doors for tensors on a GPU: what was launched for tensors of these shapes before is launched again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from noyau.dispatching.running import Built
from noyau.errors import InputError
from noyau.frontends.torch.dtypes import TO_TORCH
from noyau.runtimes.numpy import plain
from noyau.runtimes.numpy.doors import MISS, Argument
from noyau.runtimes.torch.arrays import array_of, shown
from noyau.runtimes.torch.hosting import host

_PLAIN = (torch.Tensor, torch.nn.Parameter)
MOST = 1024  # kinds of calls whose launches are kept
_ALIGNED = 15


class DeviceDoor:
    """A built program on tensors of a GPU: `door(arguments)` takes a tuple of them, and Python numbers where `ends`
    says so, and gives a new tensor, or a tuple of several; MISS where an argument is not as `ends` says, or sizes are
    refused. A tensor without axes may lie on the CPU."""

    def __init__(self, built: Built, ends: Sequence[Argument], called: str, tiles: Mapping[str, int]) -> None:
        self.ends, self.called = tuple(ends), called
        self.device = torch.device(built.generated.wanted.device)
        self.run = host(built, tiles)
        self.known: dict[Any, Callable[..., tuple[torch.Tensor, ...]]] = {}

    def __call__(self, arguments: tuple[Any, ...]) -> Any:
        for each in arguments:
            if type(each) not in _PLAIN:
                return self.anew(arguments)
        key = tuple([(t.device, t.dtype, t.shape, t.stride(), not t.data_ptr() & _ALIGNED) for t in arguments])
        plan = self.known.get(key)
        if plan is None:
            return self.anew(arguments, key)
        made = plan(arguments)
        return made[0] if len(made) == 1 else made

    def anew(self, arguments: tuple[Any, ...], key: Any = None) -> Any:
        """The same where nothing is known yet, or an argument is a number."""
        given = self.read(arguments)
        if given is None:
            return MISS
        try:
            results, plan = self.run.followed(given)
        except InputError:
            return MISS
        if plan is not None and key is not None:
            self.known = {**(self.known if len(self.known) < MOST else {}), key: plan}
        return results[0] if len(results) == 1 else tuple(results)

    def insist(self, arguments: tuple[Any, ...]) -> Any:
        """The results, or an error that says why there are none."""
        given = self.read(arguments)
        if given is None:
            raise InputError(f"{self.called}: these tensors are not as its kernel was made for them")
        results = self.run(*given)
        return results[0] if len(results) == 1 else tuple(results)

    def read(self, arguments: tuple[Any, ...]) -> list[torch.Tensor] | None:
        """The arguments as tensors on the device, or None where one does not fit."""
        if len(arguments) != len(self.ends):
            return None
        found = [self.tensor(end, each) for end, each in zip(self.ends, arguments, strict=True)]
        given = [each for each in found if each is not None]
        return given if len(given) == len(found) else None

    def tensor(self, end: Argument, each: Any) -> torch.Tensor | None:
        if not isinstance(each, torch.Tensor):
            number = plain.read(end, each)
            if number is None:
                return None
            return torch.full((), number.item(), dtype=TO_TORCH[end.dtype], device=self.device)
        if type(each) not in _PLAIN or each.is_neg() or (each.device != self.device and each.dim()):
            return None
        there = array_of(each.cpu()) if end.equals is not None else shown(each)
        return None if plain.read(end, there) is None else each.detach().to(self.device)
