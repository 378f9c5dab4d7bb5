"""A watched launch of a Numba-CUDA kernel, of a user or printed by noyau, without a GPU."""

import ctypes
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from io import StringIO
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

from noyau.dtypes import DType
from noyau.errors import DeviceError, FindingKind, NoyauError, SignatureError, UnsupportedError
from noyau.ir.loop_interpreter import bind_sizes
from noyau.ir.loops import Kernel, Role
from noyau.kernels.call import FunctionKernel, error_of
from noyau.kernels.programs.generate import BuiltProgram
from noyau.kernels.user_kernel import EXTENTS_MOST, GPU, Three, ask, python_function, short, three
from noyau.sanitizer.access_map import AccessMap, TracingShadow, Writes, map_of_writes, place_in, thread_owner
from noyau.sanitizer.engine import FILLS, Shadow, root_of
from noyau.sanitizer.lint.diagnostics import Diagnostic, warnings_of
from noyau.sanitizer.lint.launches import LaunchFacts, advise, sm_count_in
from noyau.sanitizer.numba_cuda.arrays import LaunchRecorder
from noyau.sanitizer.numba_cuda.device import SimulatedDevice, conversion_of, stand_ins, word_of
from noyau.sanitizer.numba_cuda.lockstep import LEFT_OUT, Lockstep
from noyau.sanitizer.numba_cuda.rewrite import Twins
from noyau.sanitizer.recording_array import ArrayRecord, TooManyError
from noyau.sanitizer.records import Access, Observation, Route, Site, WatchedRun, findings_of, unwritten
from noyau.sanitizer.routes import KernelCase, restore
from noyau.toolchain.numba.kernel import load, parameters_of
from noyau.verify.findings import Finding

BLOCK_MOST = 1024  # threads of a block, on every GPU since compute capability 2.0
LANGUAGE = "numba_cuda"
MOST = 30_000_000  # accesses of one launch
SMALL = replace(GPU, sm_count=2, model="a GPU of 2 multiprocessors (assumed)")  # the device for a function `launch=`
Array = np.ndarray
_MOST_KEPT_BYTES = 1 << 26  # of arrays that are copied, so that a launch may run again


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
        """Return a thread in words, by its number in the grid."""
        block, thread = divmod(number, self.threads)
        return f"thread {place_in(thread, self.block)} of block {place_in(block, self.grid)}"


def configuration_of(launch: Any) -> Configuration:
    """Read the brackets of a launch: grid, block, and optionally a stream and bytes of shared memory; an empty grid
    runs nothing. DeviceError, which names the limit, for a launch that no GPU takes."""
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
    """An argument of a kernel: a number, or an array that is watched under a name. `is_set`: whether it holds values
    before, or a mask of the cells of its memory that do (bool, shaped as the array of which it is a view)."""

    name: str
    value: Any
    is_set: bool | np.ndarray = True


@dataclass(slots=True)
class SimulatedLaunch:
    """One launch that ran. `arrays`: the memory numbers of its arrays, by name; `idle`: the number of threads that
    touched nothing, None if threads wait for each other; `callers`: as in `Twins`; `fill`: the
    byte in unset memory of its own; `uses_unset`: whether something depends on what it read there."""

    configuration: Configuration
    recorder: LaunchRecorder
    arrays: dict[str, int] = field(default_factory=dict)
    idle: int | None = None
    callers: dict[str, set[int]] = field(default_factory=dict)
    fill: int = 0
    uses_unset: bool = True

    @property
    def is_cut(self) -> bool:
        """Whether it made more accesses than the limit; later ones are not seen."""
        return self.recorder.was_cut

    @property
    def notes(self) -> tuple[str, ...]:
        """A note on lines by which the bits of a result depend on the order of threads."""
        lines = sorted({self.recorder.sites[site].line for site in self.recorder.unordered})
        places = ", ".join(map(str, lines))
        return (f"order-dependent: floats are merged by atomics in any order (line {places})",) if lines else ()

    def route(self, op: str, kernel: str, size: str) -> Route:
        """Return the names of its sites, memories and threads."""
        recorder, owner = self.recorder, self.configuration.owner
        return Route(LANGUAGE, op, kernel, size, recorder.sites, recorder.memories, owner, messages=MESSAGES)

    def report_run(self, op: str, kernel: str, size: str) -> WatchedRun:
        """Return its findings in words."""
        shadow = self.recorder.shadow
        findings, allowed = findings_of(shadow.observations(), self.route(op, kernel, size))
        if not self.uses_unset:
            findings = [each.without_effect() if each.kind is FindingKind.UNINITIALISED else each for each in findings]
        for number, each in enumerate(findings):
            if calls := self.callers.get(each.place.rpartition(":")[0]):
                called = f"called at line {', '.join(map(str, sorted(calls)))}"
                findings[number] = replace(each, message=f"{each.message}; {called}")
        ran = (self.recorder.sites[number] for number in self.recorder.ran if number >= 0)
        lines = frozenset((site.file, site.line) for site in ran)
        seen = tuple(findings), shadow.accesses, tuple(allowed), self.notes
        return WatchedRun(*seen, lines=lines, is_cut=self.is_cut)

    def access_map(self, name: str, writes: Writes) -> AccessMap:
        """Return the map of its writes."""
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
    """Run a kernel thread by thread; its arrays change as on a device. `most`: accesses after which it ends or, with
    `goes_on`, continues unwatched, so that arrays get their results; `shadow`: records the accesses, in place of a new
    one; `held`: returns the NumPy array in a device array, which may be among the kernel's globals.

    UnsupportedError names what cannot be watched, and its line; a thread's exception propagates."""
    run = SimulatedLaunch(configuration, LaunchRecorder(most, shadow, goes_on=goes_on))
    arrays = [root_of(each.value) for each in arguments if isinstance(each.value, np.ndarray)]
    before = [array.copy() for array in arrays] if sum(each.nbytes for each in arrays) <= _MOST_KEPT_BYTES else None

    def again(fill: int) -> tuple[int, str]:
        rerun = SimulatedLaunch(configuration, LaunchRecorder(most), fill=fill)
        with redirect_stdout(StringIO()) as printed:
            _run(function, rerun, arguments, held)
        return rerun.recorder.shadow.accesses, printed.getvalue()

    with suppress(TooManyError):
        try:
            _run(function, run, arguments, held)
            run.uses_unset = before is None or _uses_unset(run, again, arrays, before)
        except MemoryError as fault:
            remedy = "check it on smaller arrays"
            raise UnsupportedError(f"the shadow of its arrays has no room ({fault}); {remedy}") from None
    return run


def _uses_unset(
    run: SimulatedLaunch, again: Callable[[int], Any], arrays: Sequence[np.ndarray], before: Sequence[np.ndarray]
) -> bool:
    """Whether accesses, results or what it prints change with the bytes of unset memory that it read; its arrays stay
    as they are."""
    roots, seen = run.recorder.roots, run.recorder.shadow.observations()
    unset = {each.memory for each in seen if each.kind is FindingKind.UNINITIALISED}
    is_own = unset and min(unset) >= 0 and not {each.memory for each in roots.values()} & unset
    if run.is_cut or not is_own or not roots.keys() <= {id(each) for each in arrays}:
        return True
    results, outcomes = [each.copy() for each in arrays], set()
    for fill in FILLS:
        restore(arrays, before)
        with suppress(Exception):  # the first run did not raise
            outcomes.add((again(fill), *(each.tobytes() for each in arrays)))
            continue
        outcomes.add((fill,))
    restore(arrays, results)
    return len(outcomes) > 1


def _run(
    function: Callable[..., Any], run: SimulatedLaunch, arguments: Sequence[WatchedArgument], held: Callable[[Any], Any]
) -> None:
    recorder, grid, block = run.recorder, run.configuration.grid, run.configuration.block
    recorder.choose_unit(function, [each.value for each in arguments])
    values = [_value(each, run) for each in arguments]
    device = SimulatedDevice(recorder, grid, block, run.configuration.shared_bytes)
    device.fill = run.fill

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
    """Return the kernel's value of an argument: a watched array or record, or the number. Views of one array share a
    memory."""
    value = argument.value
    if isinstance(value, np.void):  # a record, which a kernel changes in place
        memory = (ctypes.c_char * value.nbytes).from_address(value.__array_interface__["data"][0])
        return ArrayRecord(_value(replace(argument, value=np.frombuffer(memoryview(memory), value.dtype)), run), 0)
    if not isinstance(value, np.ndarray):
        return value
    is_set, is_there = value.dtype.names is not None or argument.is_set, id(root_of(value)) in run.recorder.roots
    array = run.recorder.part_of_root(value, argument.name, is_set=is_set is True)  # fields may stay unwritten
    if isinstance(is_set, np.ndarray) and is_set.any() and not is_there:  # these cells count as written before
        whole = run.recorder.roots[id(root_of(value))]
        run.recorder.region(serial=True)
        whole.touch(whole.cells[is_set], Access.WRITE, -1)
    run.arrays[argument.name] = array.memory
    return array


def _divergent(observation: Observation, route: Route) -> str:
    """Return the message for a barrier, or a shuffle, that not all threads reach."""
    other = route.site(observation.other_site)
    verb = "has returned" if observation.cell else "waits"
    where = f"{verb} at line {other.line}" if other.line else "has come to its end"
    who, other_one = route.owner(observation.owner), route.owner(observation.other_owner)
    if observation.cell == LEFT_OUT:
        return f"{other_one} calls with a mask that leaves out its own lane"
    return f"{who} waits for others, and {other_one} {where}: it does not come"


def _uninitialised_text(observation: Observation, route: Route) -> str:
    """Return the message for an unwritten cell, or a lane without a value."""
    who = route.owner(observation.owner)
    if observation.memory < 0:
        return f"{who} reads from lane {observation.cell}, which takes no part: what it gets is undefined"
    return f"{who} reads {route.memories[observation.memory].cell_text(observation.cell)}, which nobody wrote before"


MESSAGES = {FindingKind.DIVERGENT_BARRIER: _divergent, FindingKind.UNINITIALISED: _uninitialised_text}


def lint_call(
    launch: SimulatedLaunch,
    function: Callable[..., Any],
    op: str,
    kernel: str,
    place: str,
    size: str,
    *,
    is_whole: bool,
) -> list[Finding]:
    """Warn about a launch, at `place`. `is_whole`: its sizes are the intended ones, as in a script; else only the
    behaviour of its threads is judged."""
    site, text = Site.at(place), ""
    with suppress(OSError, TypeError):
        text = inspect.getsource(python_function(function))
    shapes = [launch.recorder.memories[number].shape for number in launch.arrays.values()]
    shape, sm_count = max(shapes, key=math.prod, default=()), sm_count_in(site.file) if is_whole else 0
    facts = LaunchFacts(launch.configuration.grid, launch.configuration.block, shape, text, launch.idle, sm_count)
    advice = [each for each in advise(facts) if is_whole or "touch nothing" in each[0]]
    remarks = [Diagnostic(FindingKind.LAUNCH, site.file, site.line, *each, kernel, size) for each in advice]
    return warnings_of(remarks, op, kernel, "numba_cuda")


def watch(case: KernelCase, maps: list[AccessMap] | None = None) -> WatchedRun:
    """Watch the kernel on its arrays, with its own launch; `maps` receives its access map.

    UnsupportedError if it cannot be watched; SignatureError without a launch; RaisedError if a thread raises."""
    kernel, function, ends = case.kernel, case.kernel.function, (case.kernel.target.op, case.kernel.name, case.size)
    assert function is not None
    run, outputs = FunctionKernel(kernel, case.instance, case.constants), case.zero_outputs()
    before = run.prepare([np.array(each) for each in case.arrays], outputs)
    arguments = _arguments(run, before, outputs)
    traced = None if maps is None else TracingShadow()
    try:
        configuration = configuration_of(_launch_of(run, before, outputs))
        launch = launch_kernel(function, configuration, arguments, MOST, traced)
    except DeviceError as refusal:
        op, name, size = ends
        finding = Finding(op, name, kernel.language, FindingKind.LAUNCH, kernel.place, size, str(refusal))
        return WatchedRun((finding,), 0)
    except (NoyauError, KeyboardInterrupt):
        raise
    except Exception as fault:
        raise error_of(kernel.title, fault) from fault
    watched = launch.report_run(*ends)
    if launch.is_cut:  # its remaining writes are unknown
        return replace(watched, notes=(f"ended after {MOST} accesses",))
    findings = [*watched.findings, *_unwritten(launch, arguments, case)]
    if callable(kernel.usage.launch):  # a constant grid is for other sizes than this one
        findings += lint_call(launch, function, ends[0], ends[1], kernel.place, case.size, is_whole=False)
    if maps is not None and traced is not None:
        maps.append(launch.access_map(kernel.title, traced))
    notes = f"launched: {launch.configuration}", *launch.notes
    return replace(watched, findings=tuple(findings), notes=notes, outputs=tuple(run.results(before, outputs)))


def _launch_of(run: FunctionKernel, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Any:
    kernel, launch = run.kernel, run.kernel.usage.launch
    if callable(launch):
        launch = ask(launch, {**run.offers(arrays, outputs), "device": SMALL}, f"launch= of {kernel.title}")
    if launch is None or isinstance(launch, str):
        raise SignatureError(f"{kernel.title} needs launch=(grid, block), or a function that gives them")
    return launch


def _arguments(
    run: FunctionKernel, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
) -> list[WatchedArgument]:
    """Return the arguments; an array has the op's name for it, else that of the kernel's parameter."""
    positional, by_name = run.arguments(arrays, outputs)
    unset, terms = run.unset(arrays, outputs), (*run.instance.inputs, *run.instance.outputs)
    ends = {id(array): term.name for term, array in zip(terms, (*arrays, *outputs), strict=True)}
    assert run.kernel.function is not None
    parameters = inspect.signature(python_function(run.kernel.function)).parameters
    values = [(ends.get(id(a), name), a) for name, a in zip(parameters, (*positional, *by_name.values()), strict=False)]
    return [WatchedArgument(name, value, name not in unset) for name, value in values]


def _unwritten(launch: SimulatedLaunch, arguments: Sequence[WatchedArgument], case: KernelCase) -> list[Finding]:
    kernel, recorder = case.kernel, launch.recorder
    unset = sorted({each.name for each in arguments if not each.is_set} & launch.arrays.keys())
    memories = {launch.arrays[name]: recorder.memories[launch.arrays[name]] for name in unset}
    route = launch.route(kernel.target.op, kernel.name, case.size)
    nobody = f"no thread of {launch.configuration} writes"
    return unwritten(memories, recorder.shadow.unwritten, nobody, Site.at(kernel.place), route)


def call(function: Any, args: Sequence[Any], launch: Any, size: str, op: str) -> tuple[WatchedRun, Any]:
    """Watch a call, as sanitizer/routes.py specifies. SignatureError without a launch, or for another number of
    arguments; DeviceError for a launch that no GPU takes."""
    plain = python_function(function)
    name, names = plain.__name__, list(inspect.signature(plain).parameters)
    if launch is None:
        raise SignatureError(f"{name} needs a launch: noyau.check({name}, args, launch=(grid, block))")
    if len(args) != len(names):
        raise SignatureError(f"{name} takes {', '.join(names)}; it was given {len(args)} arguments")
    configuration = configuration_of(launch)
    arguments = [WatchedArgument(each, _on_host(value)) for each, value in zip(names, args, strict=True)]
    try:
        run = launch_kernel(plain, configuration, arguments, MOST, goes_on=True)
    except (NoyauError, KeyboardInterrupt):
        raise
    except Exception as fault:
        raise error_of(name, fault) from fault
    return run.report_run(op, name, f"{size}; launched {configuration}"), None


def _on_host(value: Any) -> Any:
    """Return the NumPy array in an array of the simulator."""
    array: Any = value._ary if isinstance(value, FakeCUDAArray) else value
    return array if isinstance(array, np.ndarray) or not hasattr(array, "copy_to_host") else array.copy_to_host()


def watch_generated(program: BuiltProgram, arrays: Sequence[Array], op: str, name: str, size: str) -> WatchedRun:
    """Watch each kernel of a program, on arrays in its layout. UnsupportedError if a launch cannot be watched."""
    text, kernels = program.generated.text, program.generated.program.kernels
    calls = [SimulatedCall(load(text)[1], kernel) for kernel in kernels]
    built: Any = tuple(calls)
    results = replace(program, kernels=built).run(arrays, lambda call, inputs: call(*inputs))
    findings = [finding for call in calls for finding in call.findings(op, name, size)]
    runs = [run for call in calls for run in call.runs]
    accesses, is_cut = sum(run.recorder.shadow.accesses for run in runs), any(run.is_cut for run in runs)
    return WatchedRun(tuple(findings), accesses, outputs=None if is_cut else tuple(results), is_cut=is_cut)


class SimulatedCall:
    """One call of a kernel's host function: `runs`, its launches; `memory`, its outputs and scratch; `written`, masks
    of the written cells, by the identity of the array."""

    def __init__(self, names: dict[str, Any], kernel: Kernel) -> None:
        self.kernel, self.names, self.runs = kernel, names, list[SimulatedLaunch]()
        self.memory, self.written = list[Array](), dict[int, Array]()

    def __call__(self, *arrays: Array) -> list[Array]:
        sizes, ends = bind_sizes(self.kernel, list(arrays), {}), self.kernel.of(Role.OUTPUT)
        shapes = (tuple(int(dim.evaluate(sizes)) for dim in buffer.shape) for buffer in ends)
        outputs = [self.unset(shape, buffer.dtype.numpy) for shape, buffer in zip(shapes, ends, strict=True)]
        numbers = range(len(self.kernel.launches))
        launches = {name: _Kernel(self, self.names[name]) for name in (f"{self.kernel.name}_{n}" for n in numbers)}
        scope = {**self.names, **launches, "cuda": SimpleNamespace(device_array=self.unset)}
        inputs = [array.view(np.uint16) if array.dtype == DType.BF16.numpy else array for array in arrays]
        FunctionType(self.names[self.kernel.name].__code__, scope, argdefs=(0,))(*inputs, *outputs)
        return [output.view(buffer.dtype.numpy) for output, buffer in zip(outputs, ends, strict=True)]

    def unset(self, shape: tuple[int, ...], dtype: Any, stream: int = 0) -> Array:
        """Make an array without a written cell."""
        self.memory.append(array := np.zeros(shape, np.uint16 if dtype == DType.BF16.numpy else dtype))
        self.written[id(array)] = np.zeros(shape, np.bool_)
        return array

    def launch(self, function: Any, launch: Any, *values: Any) -> None:
        """Run a kernel in place of a launch, and record its writes."""
        is_set = [not isinstance(each, Array) or self.written.get(id(root_of(each)), True) for each in values]
        ends = zip(parameters_of(function.py_func), values, is_set, strict=True)
        arguments = [WatchedArgument(*each) for each in ends]
        self.runs.append(run := launch_kernel(function, configuration_of(launch), arguments, MOST))
        for each in arguments:
            if isinstance(each.is_set, np.ndarray):
                mask = run.recorder.written_elements(run.arrays[each.name])
                each.is_set[...] |= mask.reshape(each.is_set.shape)

    def findings(self, op: str, name: str, size: str) -> Iterator[Finding]:
        """Yield the findings of its launches, and of output cells that none of them wrote."""
        yield from (finding for run in self.runs for finding in run.report_run(op, name, size).findings)
        code = self.names[self.kernel.name].__code__
        for output in self.memory[: len(self.kernel.of(Role.OUTPUT))]:
            missed = np.flatnonzero(~self.written[id(output)])
            run = next((run for run in self.runs if id(output) in run.recorder.roots), None)
            if missed.size and run is not None:
                number = run.recorder.roots[id(output)].memory
                place = Site.at(f"{code.co_filename}:{code.co_firstlineno}")
                holes = {number: (missed.size, int(missed[0]))}
                memories, nobody = {number: run.recorder.memories[number]}, f"no thread of {run.configuration} writes"
                yield from unwritten(memories, holes.__getitem__, nobody, place, run.route(op, name, size))


class _Kernel:
    """A kernel in the scope of the host function: its brackets take a launch, and then it is called."""

    def __init__(self, call: SimulatedCall, function: Any) -> None:
        self.call, self.function = call, function

    def __getitem__(self, launch: Any) -> Callable[..., None]:
        return partial(self.call.launch, self.function, launch)
