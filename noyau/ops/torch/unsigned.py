"""Ops without a signature on tensors: each kind of call gets one, as on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from noyau.errors import UnsupportedError
from noyau.hosts.torch.tensors import arrays_of, device_of, is_recorded, is_unwatched, require_taken, tensor_of
from noyau.kernels.programs.generate import CPU
from noyau.kernels.reference import runs_as_written
from noyau.ops.dispatch.calls import Calls
from noyau.ops.dispatch.explanation import Explanation
from noyau.ops.dispatch.unsigned import UnsignedCalls
from noyau.ops.torch.calls import TensorCalls
from noyau.ops.torch.fake_kernels import stand_in


def tensor_calls(calls: Calls | UnsignedCalls) -> Any:
    """The calls on tensors of an op, made when they are first asked for."""
    if calls.tensors is None:
        calls.tensors = TensorCalls(calls) if isinstance(calls, Calls) else UnsignedTensors(calls)
    return calls.tensors


class UnsignedTensors:
    """The calls of an op without a signature on tensors."""

    def __init__(self, calls: UnsignedCalls) -> None:
        self.follow(calls)

    def follow(self, calls: UnsignedCalls) -> None:
        """Be those of another description of the op from now on."""
        self.calls = calls

    def forget(self) -> None:
        """Nothing is kept here."""

    def __call__(
        self, arguments: tuple[Any, ...], constants: Mapping[str, Any], sizes: Mapping[str, int], out: Any = None
    ) -> Any:
        """As signed calls; where the reference cannot be traced it runs as it is, but records no gradient."""
        description = self.calls.description
        require_taken(description.name, description.reference.parameters, arguments)
        try:
            calls = self.calls.signed([stand_in(each) for each in arguments], constants)
        except UnsupportedError as error:
            if not is_unwatched(arguments) or is_recorded(arguments) or out is not None or device_of(arguments) != CPU:
                message = "sign it, give a gradient by @op.gradient, call it under torch.no_grad(), or on the CPU"
                raise UnsupportedError(f"{description.name} runs as its reference here: {error}; {message}") from error
            return self.written(arguments, constants)
        return tensor_calls(calls)(arguments, constants, sizes, out)

    def explain(self, arguments: Sequence[Any], constants: Mapping[str, Any]) -> Explanation:
        """Explain what a call with these tensors would run. UnsupportedError where the reference cannot be traced."""
        explanation: Explanation = tensor_calls(
            self.calls.signed([stand_in(each) for each in arguments], constants)
        ).explain(arguments, constants)
        return explanation

    def written(self, arguments: Sequence[Any], constants: Mapping[str, Any]) -> Any:
        """The results of the reference, or of a trusted kernel, for arrays of the same memory."""
        if runs_as_written():
            made = self.calls.description.reference.function(*arrays_of(arguments), **constants)
        else:
            made = self.calls.whole(arrays_of(arguments), constants, {}, None)
        return tuple(map(_tensor, made)) if isinstance(made, tuple) else _tensor(made)


def _tensor(result: Any) -> torch.Tensor:
    return tensor_of(np.asarray(result))
