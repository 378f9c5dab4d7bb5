"""Doors for tensors on a GPU of kernels that were written by hand in Triton."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from noyau.errors import InputError
from noyau.frontends.torch.dtypes import TO_TORCH
from noyau.hosts.numpy.fast_calls import MISS, Argument, read_argument
from noyau.hosts.torch.cuda.errors import device_errors
from noyau.kernels.programs.generate import Specialization
from noyau.kernels.triton.calls import TritonKernel
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.torch.cuda_fast_calls import DeviceDoor


class HandDoor(DeviceDoor):
    """A kernel of a user's on tensors, and on numbers where `ends` says so: as `DeviceDoor`."""

    def __init__(self, kernel: UserKernel, wanted: Specialization, ends: Sequence[Argument], called: str) -> None:
        self.ends, self.called, self.device = tuple(ends), called, torch.device(wanted.device)
        self.kernel = TritonKernel(kernel, wanted.instance, wanted.constants)
        self.results = [TO_TORCH[value.dtype] for value in wanted.instance.outputs]

    def __call__(self, arguments: tuple[Any, ...]) -> Any:
        given = self.read(arguments)
        return MISS if given is None else self.launched(given)

    def insist(self, arguments: tuple[Any, ...]) -> Any:
        given = self.read(arguments)
        if given is None:
            raise InputError(f"{self.called}: these tensors are not as its kernel takes them")
        return self.launched(given)

    def launched(self, arguments: Sequence[Any]) -> Any:
        """The results, in new tensors."""
        with device_errors(self.called, self.device):
            results = self.kernel(*arguments)
        return results[0] if len(results) == 1 else tuple(results)

    def tensor(self, end: Argument, each: Any) -> Any:
        """An argument as the kernel takes it, a number as a number; or None where it does not fit."""
        if isinstance(each, torch.Tensor):
            return super().tensor(end, each)
        number = read_argument(end, each)
        return None if number is None else number.item()
