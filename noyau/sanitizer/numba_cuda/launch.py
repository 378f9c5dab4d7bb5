"""A launch of a Numba-CUDA kernel without a GPU, every access watched."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from noyau.errors import DeviceError, FindingKind, UnsupportedError
from noyau.kernels.user_kernel import EXTENTS_MOST, Three, three
from noyau.sanitizer.access_map import AccessMap, Writes, map_of_writes, place_in, thread_owner
from noyau.sanitizer.engine import Shadow, root_of
from noyau.sanitizer.lint.launches import short
from noyau.sanitizer.numba_cuda.arrays import LaunchRecorder
from noyau.sanitizer.numba_cuda.device import SimulatedDevice, conversion_of, stand_ins, word_of
from noyau.sanitizer.numba_cuda.lockstep import LEFT_OUT, Lockstep
from noyau.sanitizer.numba_cuda.rewrite import Twins
from noyau.sanitizer.recording_array import ArrayRecord, TooManyError
from noyau.sanitizer.records import Access, Observation, Route, WatchedRun, findings_of

BLOCK_MOST = 1024  # threads of a block, of every GPU since compute capability 2.0
LANGUAGE = "numba_cuda"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of a launch: blocks, threads of a block, and bytes of dynamic shared memory."""

    grid: Three
    block: Three
    shared_bytes: int = 0

    def __str__(self) -> str:
        return f"[{short(self.grid)}, {short(self.block)}]"

    @property
    def threads(self) -> int:
        return math.prod(self.block)

    def owner(self, number: int) -> str:
        """A thread in words, by its number in the grid."""
        block, thread = divmod(number, self.threads)
        return f"thread {place_in(thread, self.block)} of block {place_in(block, self.grid)}"


def configuration_of(launch: Any) -> Configuration:
    """Read the brackets of a launch: grid, block, and perhaps a stream and bytes of shared memory; a grid of no blocks
    runs nothing. DeviceError, which names the limit, for what no GPU takes."""
    parts = launch if isinstance(launch, tuple | list) else (launch,)
    if not 2 <= len(parts) <= 4:
        raise DeviceError(f"a launch is (grid, block), a stream and bytes of shared memory; got {launch!r}")
    grid, block = (_three(part, name) for part, name in zip(parts, ("grid", "block"), strict=False))
    if math.prod(block) > BLOCK_MOST:
        raise DeviceError(f"a block of {short(block)} has {math.prod(block)} threads; a GPU takes {BLOCK_MOST}")
    return Configuration(grid, block, int(parts[3]) if len(parts) == 4 else 0)


def _three(extents: Any, name: str) -> Three:
    axes = tuple(extents) if isinstance(extents, tuple | list) else (extents,)
    is_whole = all(isinstance(each, int | np.integer) and not isinstance(each, bool) for each in axes)
    if not (is_whole and 1 <= len(axes) <= 3):
        raise DeviceError(f"the {name} of a launch is one to three integers; got {extents!r}")
    least = 0 if name == "grid" else 1
    for extent, most in zip(axes, EXTENTS_MOST[name], strict=False):
        if not least <= extent <= most:
            raise DeviceError(f"the {name} of a launch is {extents!r}; each extent lies between {least} and {most}")
    return three(axes)


@dataclass(frozen=True, slots=True)
class WatchedArgument:
    """An argument of a kernel: a number, or an array, watched under a name. `is_set`: it holds values before, or which
    of the cells of its memory do (bool, shaped as the array that it is a view of)."""

    name: str
    value: Any
    is_set: bool | np.ndarray = True


@dataclass(slots=True)
class SimulatedLaunch:
    """One launch that was run. `arrays`: the numbers of the memories of its arrays, by name; `idle`: how many of its
    threads touched nothing, None where threads wait for each other; `callers`: as of `Twins`."""

    configuration: Configuration
    recorder: LaunchRecorder
    arrays: dict[str, int] = field(default_factory=dict)
    idle: int | None = None
    callers: dict[str, set[int]] = field(default_factory=dict)

    @property
    def is_cut(self) -> bool:
        """Whether it made more accesses than it may: later ones are not seen."""
        return self.recorder.was_cut

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines that make the bits of a result hang on the order in which threads come."""
        lines = sorted({self.recorder.sites[site].line for site in self.recorder.unordered})
        places = ", ".join(map(str, lines))
        return (f"order-dependent: floats are merged by atomics in any order (line {places})",) if lines else ()

    def route(self, op: str, kernel: str, size: str) -> Route:
        """The names of its sites, memories and threads."""
        recorder, owner = self.recorder, self.configuration.owner
        return Route(LANGUAGE, op, kernel, size, recorder.sites, recorder.memories, owner, messages=MESSAGES)

    def report_run(self, op: str, kernel: str, size: str) -> WatchedRun:
        """Its findings in words."""
        shadow = self.recorder.shadow
        findings, allowed = findings_of(shadow.observations(), self.route(op, kernel, size))
        for number, each in enumerate(findings):
            if calls := self.callers.get(each.place.rpartition(":")[0]):
                called = f"called at line {', '.join(map(str, sorted(calls)))}"
                findings[number] = replace(each, message=f"{each.message}; {called}")
        ran = (self.recorder.sites[number] for number in self.recorder.ran if number >= 0)
        lines = frozenset((site.file, site.line) for site in ran)
        seen = tuple(findings), shadow.accesses, tuple(allowed), self.notes
        return WatchedRun(*seen, lines=lines, is_cut=self.is_cut)

    def access_map(self, name: str, writes: Writes) -> AccessMap:
        """The map of its writes."""
        launch, memories = self.configuration, self.recorder.memories
        own = {number: memories[number] for number in self.arrays.values()}
        owner = partial(thread_owner, grid=launch.grid, block=launch.block)
        return map_of_writes(name, str(launch), "thread", owner, own, writes)


def launch_kernel(
    function: Callable[..., Any],
    configuration: Configuration,
    arguments: Sequence[WatchedArgument],
    most: int = 1 << 62,
    shadow: Shadow | None = None,
    *,
    goes_on: bool = False,
    held: Callable[[Any], Any] = lambda value: value,
) -> SimulatedLaunch:
    """Run a kernel, thread by thread; its arrays are changed as on a device. `most`: accesses after which it ends, or
    `goes_on` unwatched, so that they hold what they should; `shadow`: where they are noted, in place of a new one;
    `held`: the array of NumPy in one of a device, which the kernel may have by a name.

    UnsupportedError names what cannot be watched, and its line; what a thread raises comes through."""
    run = SimulatedLaunch(configuration, LaunchRecorder(most, shadow, goes_on=goes_on))
    with suppress(TooManyError):
        try:
            _run(function, run, arguments, held)
        except MemoryError as fault:
            remedy = "check it on smaller arrays"
            raise UnsupportedError(f"the shadow of its arrays has no room ({fault}); {remedy}") from None
    return run


def _run(
    function: Callable[..., Any], run: SimulatedLaunch, arguments: Sequence[WatchedArgument], held: Callable[[Any], Any]
) -> None:
    recorder, grid, block = run.recorder, run.configuration.grid, run.configuration.block
    recorder.choose_unit(function, [each.value for each in arguments])
    values = [_value(each, run) for each in arguments]
    device = SimulatedDevice(recorder, grid, block, run.configuration.shared_bytes)

    def watched(value: Any, name: str) -> Any:
        array = held(value)
        return value if array is value else recorder.part_of_root(array, name)

    accesses = recorder.signed, recorder.load, recorder.store, run.callers
    twins = Twins(word_of, stand_ins(device), recorder.line, conversion_of, watched, *accesses)
    twin = twins.of(function, is_kernel=True)
    recorder.region(serial=False)
    with np.errstate(all="ignore"):
        Lockstep(recorder, device, grid, block, partial(twin.function, *values), twin.waits).run()
    run.idle = None if twin.waits else recorder.queue.idle
    recorder.play()


def _value(argument: WatchedArgument, run: SimulatedLaunch) -> Any:
    """The value that the kernel gets: an array or a record, which is watched, or the number. Views of one array share a
    memory."""
    value = argument.value
    if isinstance(value, np.void):  # a record, which a kernel changes where it lies
        memory = (ctypes.c_char * value.nbytes).from_address(value.__array_interface__["data"][0])
        return ArrayRecord(_value(replace(argument, value=np.frombuffer(memoryview(memory), value.dtype)), run), 0)
    if not isinstance(value, np.ndarray):
        return value
    is_set, is_there = argument.is_set, id(root_of(value)) in run.recorder.roots
    array = run.recorder.part_of_root(value, argument.name, is_set=is_set is True)
    if isinstance(is_set, np.ndarray) and is_set.any() and not is_there:  # such cells are written before the launch
        whole = run.recorder.roots[id(root_of(value))]
        run.recorder.region(serial=True)
        whole.touch(whole.cells[is_set], Access.WRITE, -1)
    run.arrays[argument.name] = array.memory
    return array


def _divergent(observation: Observation, route: Route) -> str:
    """The message for a barrier, or a shuffle, that not all threads reach."""
    other = route.site(observation.other_site)
    verb = "has returned" if observation.cell else "waits"
    where = f"{verb} at line {other.line}" if other.line else "has come to its end"
    who, other_one = route.owner(observation.owner), route.owner(observation.other_owner)
    if observation.cell == LEFT_OUT:
        return f"{other_one} calls with a mask that leaves out its own lane"
    return f"{who} waits for others, and {other_one} {where}: it does not come"


def _uninitialised_text(observation: Observation, route: Route) -> str:
    """The message for a cell that nobody wrote, or a lane that gives nothing."""
    who = route.owner(observation.owner)
    if observation.memory < 0:
        return f"{who} reads from lane {observation.cell}, which takes no part: what it gets is undefined"
    return f"{who} reads {route.memories[observation.memory].cell_text(observation.cell)}, which nobody wrote before"


MESSAGES = {FindingKind.DIVERGENT_BARRIER: _divergent, FindingKind.UNINITIALISED: _uninitialised_text}
