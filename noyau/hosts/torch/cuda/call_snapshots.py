"""Snapshots of timed calls: inputs and results, copied right behind the call, to be judged when all timing is done."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from noyau.hosts.torch.cuda.tensor_rotation import SetRenewal, TensorRotation, Tensors, alike, same_bits, shares_memory
from noyau.hosts.torch.tensors import array_of
from noyau.timing.output_checks import Check


@dataclass(frozen=True, slots=True)
class KeptCall:
    """One timed call: its inputs and its results, copied where they lay; or what is wrong with how it went."""

    inputs: Tensors
    outputs: Tensors
    fault: str = ""

    def wrong(self, check: Check) -> str:
        """Fault of the call, or nothing."""
        if self.fault:
            return self.fault
        inputs, outputs = (tuple(array_of(each.cpu()) for each in part) for part in (self.inputs, self.outputs))
        return check(inputs, outputs)


@dataclass(slots=True)
class CallLook:
    """A call that is looked at."""

    live: Tensors
    change: SetRenewal
    inputs: Tensors = ()
    results: Tensors = ()
    copies: Tensors = ()
    fault: str = ""

    def after(self, result: object) -> None:
        """Copy what it returned, right behind it on the queue."""
        self.results, self.fault = result_tensors(result)
        self.copies = tuple(map(alike, self.results))

    def settled(self, rotation: TensorRotation) -> KeptCall:
        """Call to judge, once the device is idle."""
        self.change.apply(self.inputs, rotation.sources)
        return KeptCall(self.inputs, self.copies, self.fault or self._left_behind())

    def _left_behind(self) -> str:
        for number, (now, before) in enumerate(zip(self.live, self.inputs, strict=True)):
            if not same_bits(now, before):
                return f"it changed its input {number}; it must work on a copy, inside the time that is measured"
        for number, (now, then) in enumerate(zip(self.results, self.copies, strict=True)):
            if not same_bits(now, then):
                return (
                    f"its output {number} changed after the call was over: work goes on on another stream or thread, "
                    "or memory is used again"
                )
            if any(shares_memory(now, each) for each in self.live):
                return f"its output {number} is a view of an input; return memory of its own"
        return ""


def result_tensors(result: object) -> tuple[Tensors, str]:
    """The tensors that a call returned, or what it returned instead."""
    parts = tuple(result) if isinstance(result, tuple | list) else (result,)
    for part in parts:
        if type(part) not in (torch.Tensor, torch.nn.Parameter):  # a subclass may do its work when it is looked at
            return (), f"it returned {type(part).__name__}, not a tensor: what is left to do later is not timed"
    return tuple(part.detach() for part in parts if isinstance(part, torch.Tensor)), ""
