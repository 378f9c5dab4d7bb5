"""Launches of a text of language `triton` with little work in Python: the first call with tensors of some shapes runs
the text's own function and is recorded; later calls replay the record.

Triton's launcher binds, specialises and looks up at each call, which costs 10 us and more a launch. Its choices
depend on shapes, strides, dtypes and on whether memory begins at a multiple of 16 bytes: calls that are alike in these
launch the same compiled kernels with the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from triton import knobs

from noyau.errors import InputError
from noyau.hosts.torch.cuda.device import beside_captures, device_errors, device_of, guard, require_free
from noyau.hosts.torch.cuda.launch_records import TAPE, CallRecord, function_of
from noyau.ir.loops import Kernel

MOST_PLANS = 1024  # of one kernel; at more, the former ones are dropped
_ALIGNED = 15  # Triton specialises on memory that begins at a multiple of 16 bytes
_HEAD = ("self", "gridX", "gridY", "gridZ", "stream", "function")


class Launcher:
    """A kernel on plain tensors of one device, in its layouts: `launcher(tensors)` returns its results.

    On the current stream, under the device's guard. UnsupportedError for the first call with shapes while a CUDA graph
    is captured; torch.OutOfMemoryError; DeviceError where a launch is beyond a limit, or the device's context is lost;
    InputError where shapes do not fit."""

    def __init__(self, text: str, kernel: Kernel, called: str, tiles: Mapping[str, int]) -> None:
        self.function = function_of(text, kernel)
        self.called, self.tiles = called, tiles
        self.plans: dict[Any, ReplayPlan] = {}

    def __call__(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        key = kinds_of(tensors)
        plan = self.plans.get(key)
        return self.first(key, tensors) if plan is None else plan(tensors)

    def known_call(self, tensors: Sequence[Tensor]) -> ReplayPlan | None:
        """The plan for tensors of such shapes, if there was a call."""
        return self.plans.get(kinds_of(tensors))

    def first(self, key: Any, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Run and record the first call for tensors of such shapes."""
        device = device_of(tensors)
        require_free(self.called)
        record = CallRecord(tensors, self.called)
        with device_errors(self.called, device, record.allocations), guard(device), beside_captures():
            result = record_call(record, self.function, tensors, self.tiles)
        results = result if isinstance(result, tuple) else (result,)
        record.results = tuple(map(record.place, results))
        if record.again and device.type == "cuda" and min(record.results) >= 0:
            kept = self.plans if len(self.plans) < MOST_PLANS else {}
            self.plans = {**kept, key: ReplayPlan(self.called, device, record)}
        return results


def record_call(
    record: CallRecord, function: Callable[..., Any], tensors: Sequence[Tensor], tiles: Mapping[str, int]
) -> Any:
    """Call a function of a text, with its launches and allocations recorded in `record`."""
    with TAPE.holding(record=record):
        try:
            return function(*tensors, **tiles)
        except ValueError as error:  # of the text: shapes that do not fit
            raise InputError(f"{record.called}: {error}") from error


def kinds_of(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """The key of a launch: the properties of its tensors that it depends on."""
    return tuple([(t.get_device(), t.dtype, t.shape, t.stride(), not t.data_ptr() & _ALIGNED) for t in tensors])


class ReplayPlan:
    """A recorded call, replayed on other tensors of the same shapes. It holds no tensor."""

    __slots__ = ("allocations", "called", "device", "index", "launched", "results")

    def __init__(self, called: str, device: torch.device, record: CallRecord) -> None:
        self.called, self.device, self.index = called, device, device.index or 0
        own, used = len(record.inputs), {*record.results, *(at for each in record.launched for _, at in each.places)}
        # Scratch of launches that did not run is left out.
        kept = [*range(own), *sorted(at for at in used if at >= own)]
        place = {at: number for number, at in enumerate(kept)}
        self.allocations = tuple(record.allocations[at - own] for at in kept[own:])
        self.results = tuple(place[at] for at in record.results)
        self.launched = [
            (*direct(k.run), each.grid, k.function, k.packed_metadata, k, each.arguments, places)
            for each in record.launched
            for k, places in [(each.kernel, tuple((number, place[at]) for number, at in each.places))]
        ]

    def __call__(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        if current_device() != self.index:
            with torch.cuda.device(self.index):
                return self(tensors)
        try:
            return self.launch(tensors)
        except RuntimeError:
            with device_errors(self.called, self.device, self.allocations):
                raise

    def launch(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        device, empty = self.device, torch.empty
        values = [*tensors, *[empty(shape, dtype=dtype, device=device) for shape, dtype in self.allocations]]
        stream, hooks = raw_stream(self.index), knobs.runtime
        enter, leave = _live_hook(hooks.launch_enter_hook), _live_hook(hooks.launch_exit_hook)
        for run, more, grid, function, packed, kernel, arguments, places in self.launched:
            numbers = list(arguments)
            for at, place in places:
                numbers[at] = values[place].data_ptr()  # Triton looks up no number in the driver
            seen = None if enter is None else kernel.launch_metadata(grid, stream, *numbers)
            run(*grid, stream, function, *more, packed, seen, enter, leave, *numbers)
        return tuple([values[place] for place in self.results])


def _live_hook(hook: Any) -> Any:
    """A hook of launches, or None where none is registered: an empty chain costs as much as a launch."""
    return None if hook is None or not getattr(hook, "calls", True) else hook


def direct(run: Any) -> tuple[Any, tuple[Any, ...]]:
    """Launcher of a compiled kernel, and its arguments behind the function: the C function below Triton's
    launcher, where that would only add memory that the kernel does not need; else the launcher itself."""
    code = getattr(vars(type(run)).get("__call__"), "__code__", None)
    plain = code is not None and code.co_varnames[: code.co_argcount] == _HEAD and code.co_flags & 4
    asks = [getattr(run, f"{name}_scratch_size", 1) for name in ("global", "profile")]
    if not plain or any(asks) or not hasattr(run, "launch_pdl"):
        return run, ()
    return run.launch, (run.launch_cooperative_grid, run.launch_pdl, None, None)


def is_hooked() -> bool:
    """Whether a hook of launches is registered with Triton."""
    hooks = knobs.runtime
    return _live_hook(hooks.launch_enter_hook) is not None or _live_hook(hooks.launch_exit_hook) is not None


current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)
raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0)
set_device: Callable[[int], None] = getattr(torch._C, "_cuda_setDevice", lambda index: None)
