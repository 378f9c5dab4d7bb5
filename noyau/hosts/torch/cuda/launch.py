"""Launches of a text of language `triton` with little done by Python: the first call with tensors of some shapes runs
the text's own function and is noted; later ones do again what was noted.

Triton's launcher binds, specialises and looks up at each call, which costs 10 us and more a launch. What it finds
depends on shapes, strides, dtypes and on whether memory begins at a multiple of 16 bytes: calls that are alike in these
launch the same compiled kernels with the same numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import torch
from triton import knobs

from noyau.errors import InputError
from noyau.hosts.torch.cuda.device import beside_captures, device_errors, guard, require_free, require_grid
from noyau.ir.loops import Kernel
from noyau.toolchain.triton.module import load

Tensor: TypeAlias = torch.Tensor
MOST_PLANS = 1024  # of one kernel; beyond, those of before are dropped
_ALIGNED = 15  # Triton looks whether memory begins at a multiple of 16 bytes


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """A compiled kernel, on what grid, with what: `arguments` has None where a tensor goes, and `places` where each of
    these is among inputs and allocations."""

    kernel: Any
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]
    places: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class CallRecord:
    """Record of one call. `allocations`: shape and dtype of each; `results`: where they are among inputs and
    allocations; `again`: whether doing that again is the same call."""

    inputs: Sequence[Tensor]
    called: str
    allocations: list[tuple[tuple[int, ...], torch.dtype]] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    launched: list[LaunchRecord] = field(default_factory=list)
    results: tuple[int, ...] = ()
    again: bool = True

    def place(self, tensor: object) -> int:
        """Index of a tensor among inputs and allocations; -1 where it is none of them."""
        known = (*self.inputs, *self.tensors)
        return next((at for at, each in enumerate(known) if each is tensor), -1)

    def note(self, kernel: Any, grid: Sequence[int], arguments: Sequence[Any]) -> None:
        """A launch that was done."""
        places = [(at, self.place(each)) for at, each in enumerate(arguments) if isinstance(each, torch.Tensor)]
        self.again &= hasattr(kernel, "run") and all(place >= 0 for _, place in places)
        whole = tuple(None if isinstance(each, torch.Tensor) else each for each in arguments)
        x, y, z = (*grid, 1, 1)[:3]
        self.launched.append(LaunchRecord(kernel, (x, y, z), whole, tuple(places)))


class _Tape(threading.local):
    """State of this thread: the record that is written, launches for later, and the allocator of results."""

    noted: CallRecord | None = None
    foretold: list[tuple[Any, Sequence[Any], Mapping[str, Any]]] | None = None
    empty: Callable[..., Tensor] = torch.empty


TAPE = _Tape()


class TextTorch:
    """The name `torch` in a text: its allocations are noted, or made by another function."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def empty(shape: int | tuple[int, ...], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        noted, shape = TAPE.noted, (shape,) if isinstance(shape, int) else shape
        if noted is not None:
            noted.allocations.append((shape, dtype))
        tensor = TAPE.empty(shape, dtype=dtype, device=device)
        if noted is not None:
            noted.tensors.append(tensor)
        return tensor


class TextLaunch:
    """The name of a launch in a text: as Triton's function, but noted."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def launch(*arguments: Any, **options: Any) -> Any:
            if TAPE.foretold is not None:
                TAPE.foretold.append((self.function, arguments, options))
                return None
            noted = TAPE.noted
            if noted is not None:
                require_grid(noted.called, grid)
            kernel = self.function[grid](*arguments, **options)
            if noted is not None:
                noted.note(kernel, grid, arguments)
            return kernel

        return launch


@cache
def namespace(text: str) -> Mapping[str, Any]:
    """The names of a text, whose allocations and launches are noted."""
    names = load(text)
    names["torch"] = TextTorch()
    return names


def function_of(text: str, kernel: Kernel) -> Callable[..., Any]:
    """The function of a kernel in a text."""
    names = namespace(text)
    for at in range(len(kernel.launches)):
        launch = names.get(f"{kernel.name}_{at}")
        if launch is not None and not isinstance(launch, TextLaunch):
            names[f"{kernel.name}_{at}"] = TextLaunch(launch)  # type: ignore[index]  # a dict behind a Mapping
    result: Callable[..., Any] = names[kernel.name]
    return result


class Launcher:
    """A kernel on plain tensors of one device, which lie as it takes them: `launcher(tensors)` gives its results.

    On the current stream, under the device's guard. UnsupportedError for what was not called before while a CUDA graph
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

    def known(self, tensors: Sequence[Tensor]) -> ReplayPlan | None:
        """Launches that are known for tensors of such shapes."""
        return self.plans.get(kinds_of(tensors))

    def first(self, key: Any, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The results for tensors of such shapes, noted."""
        device = tensors[0].device
        require_free(self.called)
        noted = CallRecord(tensors, self.called)
        with device_errors(self.called, device, noted.allocations), guard(device), beside_captures():
            result = record_call(noted, self.function, tensors, self.tiles)
        results = result if isinstance(result, tuple) else (result,)
        noted.results = tuple(map(noted.place, results))
        if noted.again and device.type == "cuda" and min(noted.results) >= 0:
            kept = self.plans if len(self.plans) < MOST_PLANS else {}
            self.plans = {**kept, key: ReplayPlan(self.called, device, noted)}
        return results


def kinds_of(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """Facts of its tensors that a launch depends on."""
    return tuple([(t.get_device(), t.dtype, t.shape, t.stride(), not t.data_ptr() & _ALIGNED) for t in tensors])


def record_call(
    noted: CallRecord, function: Callable[..., Any], tensors: Sequence[Tensor], tiles: Mapping[str, int]
) -> Any:
    """Call a function of a text, and note what it does in `noted`."""
    before, TAPE.noted = TAPE.noted, noted
    try:
        return function(*tensors, **tiles)
    except ValueError as error:  # of the text: shapes that do not fit
        raise InputError(f"{noted.called}: {error}") from error
    finally:
        TAPE.noted = before


def foretell(
    function: Callable[..., Any], tensors: Sequence[Tensor]
) -> list[tuple[Any, Sequence[Any], Mapping[str, Any]]]:
    """Launches that a function of a text would make for tensors: functions of Triton's, their arguments and options."""
    before, TAPE.foretold = TAPE.foretold, []
    try:
        function(*tensors)
        return TAPE.foretold
    finally:
        TAPE.foretold = before


class ReplayPlan:
    """A call that was noted, done again on other tensors of the same shapes. It holds no tensor."""

    __slots__ = ("allocations", "called", "device", "index", "launched", "results")

    def __init__(self, called: str, device: torch.device, noted: CallRecord) -> None:
        self.called, self.device, self.index = called, device, device.index or 0
        self.allocations, self.results = tuple(noted.allocations), noted.results
        self.launched = [
            (e.kernel.run, e.grid, e.kernel.function, e.kernel.packed_metadata, e.kernel, e.arguments, e.places)
            for e in noted.launched
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
        for run, grid, function, packed, kernel, arguments, places in self.launched:
            numbers = list(arguments)
            for at, place in places:
                numbers[at] = values[place].data_ptr()  # a number is not looked up in the driver
            seen = None if enter is None else kernel.launch_metadata(grid, stream, *numbers)
            run(*grid, stream, function, packed, seen, enter, leave, *numbers)
        return tuple([values[place] for place in self.results])


def _live_hook(hook: Any) -> Any:
    """A hook of launches, or None where nobody has asked for one: an empty chain costs as much as a launch."""
    return None if hook is None or not getattr(hook, "calls", True) else hook


_HEAD = ("self", "gridX", "gridY", "gridZ", "stream", "function")


def direct(run: Any) -> tuple[Any, tuple[Any, ...]]:
    """Launcher of a compiled kernel, and its arguments behind the function: the C function below Triton's
    launcher, where that would only add memory that the kernel does not ask for; else the launcher itself."""
    code = getattr(vars(type(run)).get("__call__"), "__code__", None)
    plain = code is not None and code.co_varnames[: code.co_argcount] == _HEAD and code.co_flags & 4
    asks = [getattr(run, f"{name}_scratch_size", 1) for name in ("global", "profile")]
    if not plain or any(asks) or not hasattr(run, "launch_pdl"):
        return run, ()
    return run.launch, (run.launch_cooperative_grid, run.launch_pdl, None, None)


def is_hooked() -> bool:
    """Whether somebody has asked Triton to tell of launches."""
    hooks = knobs.runtime
    return _live_hook(hooks.launch_enter_hook) is not None or _live_hook(hooks.launch_exit_hook) is not None


current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)
raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0)
