"""Callables of tensors as the sides of a comparison: each sample is one call on a queue that is held, on inputs that
are new; what some of the timed calls returned is kept, and judged when all timing is done.

The inputs change while the queue is held, so that what runs on another stream reads what was there before; results are
copied right behind the call, and looked at again later, so that what goes on elsewhere is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from noyau.errors import CheckError
from noyau.runtimes.torch.arrays import array_of
from noyau.timing.blocked import Around, BlockedClock, Hold, Sample
from noyau.timing.comparing import Timed
from noyau.timing.torch_rotating import (
    Change,
    TensorRotation,
    Tensors,
    alike,
    poison,
    same_bits,
    shares_memory,
)
from noyau.timing.trials import VERIFIED
from noyau.timing.verifying import Check

Run = Callable[..., object]
_AT_FIRST = {  # as they are when this is imported
    "torch.cuda.Event": torch.cuda.Event,
    "torch.cuda.synchronize": torch.cuda.synchronize,
    "torch.cuda.current_stream": torch.cuda.current_stream,
    "torch.cuda.Event.elapsed_time": torch.cuda.Event.elapsed_time,
    "torch.cuda.Event.record": torch.cuda.Event.record,
    "torch.cuda.Event.synchronize": torch.cuda.Event.synchronize,
    "torch.equal": torch.equal,
}


@dataclass(frozen=True, slots=True)
class Kept:
    """One timed call: its inputs and its results, copied where they lay; or what is wrong with how it went."""

    inputs: Tensors
    outputs: Tensors
    fault: str = ""

    def wrong(self, check: Check) -> str:
        """What is wrong with it, or nothing."""
        if self.fault:
            return self.fault
        given, made = (tuple(array_of(each.cpu()) for each in part) for part in (self.inputs, self.outputs))
        return check(given, made)


@dataclass(slots=True)
class TensorSide(Timed):
    """A callable of tensors on a rotation. `like`: what it returned before, in shape and dtype; `arguments`: what it is
    called with for a set of tensors; `verified`: how many of its timed calls are kept."""

    name: str
    run: Run
    rotation: TensorRotation
    like: Sequence[torch.Tensor]
    clock: BlockedClock
    cold: bool
    rng: np.random.Generator
    arguments: Callable[[Tensors], tuple[Any, ...]] = tuple
    verified: int = VERIFIED
    samples: list[Sample] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    hold: Hold = field(default_factory=Hold)

    def lasts(self, calls: int) -> float:
        """Seconds of so many calls on the device."""
        return sum(self._one() for _ in range(calls))

    def _one(self) -> float:
        self.samples.append(self._sample())
        return self.samples[-1].took_s

    def _slot(self) -> int | None:
        """Where this sample is kept, or None: of n samples, each is kept as likely as any other."""
        count = len(self.samples) + 1
        place = count - 1 if count <= self.verified else int(self.rng.integers(count))
        return place if place < self.verified else None

    def _sample(self) -> Sample:
        number, change = self.rotation.turn()
        live, slot = self.rotation.sets[number], self._slot()
        look = _Look(live, change) if slot is not None else None
        taken, run = self.arguments(live), self.run

        def before() -> None:
            change.apply(live, self.rotation.sources)

        around = Around(self._prepare(look), before, None if look is None else look.after)
        sample = self.clock.sample(lambda: run(*taken), cold=self.cold, around=around, hold=self.hold)
        if look is not None and slot is not None:
            self.clock.queue.settle()
            self.kept[slot : slot + 1] = [look.settled(self.rotation)]
        return sample

    def _prepare(self, look: _Look | None) -> Callable[[], None]:
        """What is done first, for a call that is kept: its inputs are copied, and memory that results may get is
        poisoned."""

        def first() -> None:
            if look is not None:
                look.inputs = tuple(map(alike, look.live))
                poison([torch.empty_like(each) for each in self.like])

        return first

    @property
    def unblocked(self) -> int:
        """How many samples may hold some of what the host took."""
        return sum(not sample.blocked for sample in self.samples)

    def refuse(self, check: Check) -> None:
        """CheckError where one of the kept calls was wrong, or the clock was tampered with."""
        refuse_tampering(self.name)
        for kept in self.kept:
            fault = kept.wrong(check)
            if fault:
                raise CheckError(f"{self.name} was wrong in a run that was timed: {fault}")


@dataclass(slots=True)
class _Look:
    """A call that is looked at."""

    live: Tensors
    change: Change
    inputs: Tensors = ()
    results: Tensors = ()
    copies: Tensors = ()
    fault: str = ""

    def after(self, result: object) -> None:
        """Copy what it returned, right behind it on the queue."""
        self.results, self.fault = returned(result)
        self.copies = tuple(map(alike, self.results))

    def settled(self, rotation: TensorRotation) -> Kept:
        """What there is to judge, once the device is idle."""
        self.change.apply(self.inputs, rotation.sources)
        return Kept(self.inputs, self.copies, self.fault or self._left_behind())

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
            if any(shares_memory(now, given) for given in self.live):
                return f"its output {number} is a view of an input; return memory of its own"
        return ""


def returned(result: object) -> tuple[Tensors, str]:
    """The tensors that a call returned, or what it returned instead."""
    parts = tuple(result) if isinstance(result, tuple | list) else (result,)
    for part in parts:
        if type(part) not in (torch.Tensor, torch.nn.Parameter):  # a subclass may do its work when it is looked at
            return (), f"it returned {type(part).__name__}, not a tensor: what is left to do later is not timed"
    return tuple(part.detach() for part in parts if isinstance(part, torch.Tensor)), ""


def refuse_tampering(name: str) -> None:
    """CheckError where what the clock is made of was replaced."""
    for known, was in _AT_FIRST.items():
        found: Any = torch
        for word in known.split(".")[1:]:
            found = getattr(found, word)
        if found is not was:
            raise CheckError(f"{name} is not timed: {known} was replaced while it ran")
