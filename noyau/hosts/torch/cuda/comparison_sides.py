"""Callables of tensors as the sides of a comparison: each sample is one call on a held queue, on new inputs; the
results of some timed calls are kept, and checked after all timing.

The inputs change while the queue is held, so that work on another stream reads the old ones; results are copied right
behind the call, and compared with their copies later, so that work that goes on elsewhere is detected."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from noyau.errors import CheckError
from noyau.hosts.torch.cuda import tensor_rotation
from noyau.hosts.torch.tensors import array_of
from noyau.timing.queue_clock import Around, BlockedClock, Hold, Sample
from noyau.timing.sides import VERIFIED, Check, SelfTimedSide


@dataclass(frozen=True, slots=True)
class KeptCall:
    """One timed call: copies of its inputs and its results; or a fault in how it ran."""

    inputs: tensor_rotation.Tensors
    outputs: tensor_rotation.Tensors
    fault: str = ""

    def wrong(self, check: Check) -> str:
        """The fault of the call, or an empty text."""
        if self.fault:
            return self.fault
        inputs, outputs = (tuple(array_of(each.cpu()) for each in part) for part in (self.inputs, self.outputs))
        return check(inputs, outputs)


@dataclass(slots=True)
class CallLook:
    """A timed call whose inputs and results are copied for a check."""

    live: tensor_rotation.Tensors
    change: tensor_rotation.SetRenewal
    inputs: tensor_rotation.Tensors = ()
    results: tensor_rotation.Tensors = ()
    copies: tensor_rotation.Tensors = ()
    fault: str = ""

    def after(self, result: object) -> None:
        """Copy the results of the call, right behind it on the queue."""
        self.results, self.fault = tensor_rotation.result_tensors(result)
        self.copies = tuple(map(tensor_rotation.alike, self.results))

    def snapshot(self, rotation: tensor_rotation.TensorRotation) -> KeptCall:
        """The call to check, once the device is idle."""
        self.change.apply(self.inputs, rotation.sources)
        return KeptCall(self.inputs, self.copies, self.fault or self._leftover())

    def _leftover(self) -> str:
        for number, (now, before) in enumerate(zip(self.live, self.inputs, strict=True)):
            if not tensor_rotation.same_bits(now, before):
                return f"it changed its input {number}; it must work on a copy, inside the time that is measured"
        for number, (now, then) in enumerate(zip(self.results, self.copies, strict=True)):
            if not tensor_rotation.same_bits(now, then):
                reason = "work goes on on another stream or thread, or memory is used again"
                return f"its output {number} changed after the call was over: {reason}"
            if any(tensor_rotation.shares_memory(now, each) for each in self.live):
                return f"its output {number} is a view of an input; return memory of its own"
        return ""


_EVENT = [f"cuda.Event{method}" for method in ("", ".elapsed_time", ".record", ".synchronize")]
_CLOCK = (*_EVENT, "cuda.synchronize", "cuda.current_stream", "equal")
_AT_FIRST = {f"torch.{name}": attrgetter(name)(torch) for name in _CLOCK}  # the functions at import


@dataclass(slots=True)
class TensorSide(SelfTimedSide):
    """A callable of tensors on a rotation. `like`: tensors of the shapes and dtypes of its results; `arguments`: its
    arguments for a set of tensors; `verified`: the number of its timed calls that are kept."""

    name: str
    run: Callable[..., object]
    rotation: tensor_rotation.TensorRotation
    like: Sequence[torch.Tensor]
    clock: BlockedClock
    cold: bool
    rng: np.random.Generator
    arguments: Callable[[tensor_rotation.Tensors], tuple[Any, ...]] = tuple
    verified: int = VERIFIED
    samples: list[Sample] = field(default_factory=list)
    snapshots: list[KeptCall] = field(default_factory=list)
    hold: Hold = field(default_factory=Hold)

    def lasts(self, calls: int) -> float:
        """Seconds of so many calls on the device."""
        for _ in range(calls):
            self.samples.append(self._sample())
        return sum(sample.took_s for sample in self.samples[len(self.samples) - calls :])

    def _slot(self) -> int | None:
        """The slot of this sample, or None: a reservoir, which keeps each of n samples with the same probability."""
        count = len(self.samples) + 1
        place = count - 1 if count <= self.verified else int(self.rng.integers(count))
        return place if place < self.verified else None

    def _sample(self) -> Sample:
        number, change = self.rotation.turn()
        live, slot = self.rotation.sets[number], self._slot()
        look = CallLook(live, change) if slot is not None else None
        taken, run = self.arguments(live), self.run

        def before() -> None:
            change.apply(live, self.rotation.sources)

        def first() -> None:
            if look is not None:  # its inputs are copied, and memory that results may get is poisoned
                look.inputs = tuple(map(tensor_rotation.alike, look.live))
                tensor_rotation.poison([torch.empty_like(each) for each in self.like])

        around = Around(first, before, None if look is None else look.after)
        sample = self.clock.sample(lambda: run(*taken), cold=self.cold, around=around, hold=self.hold)
        if look is not None and slot is not None:
            self.clock.queue.settle()
            self.snapshots[slot : slot + 1] = [look.snapshot(self.rotation)]
        return sample

    @property
    def unblocked(self) -> int:
        """The number of samples that may contain time of the host."""
        return sum(not sample.blocked for sample in self.samples)

    def refuse(self, check: Check) -> None:
        """Raise CheckError where one of the kept calls was wrong, or the clock was tampered with."""
        for known, was in _AT_FIRST.items():
            if attrgetter(known.removeprefix("torch."))(torch) is not was:
                raise CheckError(f"{self.name} is not timed: {known} was replaced while it ran")
        for kept in self.snapshots:
            if fault := kept.wrong(check):
                raise CheckError(f"{self.name} was wrong in a run that was timed: {fault}")
