"""Detection of tampering by a timed callable, from its side effects: never from its time."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noyau.errors import CheckError

Arrays = Sequence[np.ndarray]

POISON = 0xA5

# Bound when noyau is imported: later replacements by a callable are detected, and not used.
seconds = time.perf_counter
_monotonic = time.monotonic
_NAMES = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns")
_CLOCKS = {name: getattr(time, name) for name in _NAMES}
_FASTER_CLOCK = 1.05
_LEAST_S = 0.05


@dataclass(slots=True)
class Snapshot:
    """A timed call, chosen before it ran: its arrays, copies of inputs from before it and of outputs at its return."""

    inputs: Arrays
    live_inputs: Arrays
    outputs: Arrays = ()
    live_outputs: Arrays = ()
    fault: str = field(default="")

    def keep(self, result: object, into: Arrays) -> None:
        """Copy the call's result, or the memory `into` that it wrote to."""
        live, self.fault = (list(into), "") if into else result_arrays(result)
        self.live_outputs, self.outputs = live, [array.copy() for array in live]

    def settle(self) -> None:
        """Check again, once the following calls have run, then release the memory."""
        self.fault = self.fault or side_effect(self)
        self.live_inputs = self.live_outputs = ()


def result_arrays(result: object) -> tuple[list[np.ndarray], str]:
    """The arrays that a call returned, or the fault of any other result."""
    parts: list[Any] = list(result) if isinstance(result, tuple | list) else [result]
    others = [type(part) for part in parts if type(part) is not np.ndarray]  # a subclass may compute lazily
    if others:
        return [], f"it returned {others[0].__name__}, not an array: what is left to do later is not timed"
    return parts, ""


def side_effect(snapshot: Snapshot) -> str:
    """The misuse of memory by a call, or an empty text."""
    for number, (now, before) in enumerate(zip(snapshot.live_inputs, snapshot.inputs, strict=True)):
        if not same_bits(now, before):
            return f"it changed its input {number}; it must work on a copy, inside the time that is measured"
    for number, (now, then) in enumerate(zip(snapshot.live_outputs, snapshot.outputs, strict=True)):
        if not same_bits(now, then):
            return f"its output {number} changed after it had returned: work goes on elsewhere, or memory is used again"
        if any(np.may_share_memory(now, array) for array in snapshot.live_inputs):
            return f"its output {number} is a view of an input; return memory of its own"
    return ""


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays of one shape hold the same bits; packed arrays are not copied."""
    if one.flags.c_contiguous and other.flags.c_contiguous:
        return np.array_equal(one.reshape(-1).view(np.uint8), other.reshape(-1).view(np.uint8))
    return one.tobytes() == other.tobytes()


def poison(arrays: Arrays) -> None:
    """Overwrite memory, so that earlier results are gone and each cell has to be written again."""
    for array in arrays:
        array.reshape(-1).view(np.uint8)[:] = POISON


class Watch:
    """A watchdog of the clock itself, from its creation until `refuse`."""

    def __init__(self) -> None:
        self.start_s, self.other_s = seconds(), _monotonic()
        self.slack_s = seconds() - self.start_s  # another process may have run between the two readings

    def refuse(self, name: str) -> None:
        """CheckError if a clock of Python was replaced, or deviates from another clock."""
        replaced = [clock_name for clock_name, clock in _CLOCKS.items() if getattr(time, clock_name) is not clock]
        if replaced:
            raise CheckError(f"{name} is not timed: time.{replaced[0]} was replaced while it ran")
        passed_s, other_s = seconds() - self.start_s, _monotonic() - self.other_s
        slack_s = self.slack_s + (seconds() - self.start_s - passed_s) + _LEAST_S
        if not other_s / _FASTER_CLOCK - slack_s < passed_s < other_s * _FASTER_CLOCK + slack_s:
            raise CheckError(f"{name} is not timed: the clock saw {passed_s:.3g} s pass, another one {other_s:.3g} s")
