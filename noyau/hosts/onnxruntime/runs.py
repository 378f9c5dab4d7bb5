"""Runs of a session: on arrays by name, and as callables, whose inputs and outputs are bound to memory beforehand.

Also the timed session in a worker process, some runs of which are checked."""

from __future__ import annotations

import ctypes
import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from noyau.dtypes import DType
from noyau.errors import CheckError, InputError, UnsupportedError
from noyau.frontends.onnx_messages import subgraphs
from noyau.hosts.onnxruntime.sessions import load_onnxruntime, one_line, open_session
from noyau.timing.sides import cold_sets, hot_sets
from noyau.workers.array_files import read_arrays
from noyau.workers.tamper_detection import poison, seconds
from noyau.workers.worker import Worker

if TYPE_CHECKING:
    import onnxruntime
    from onnx import ModelProto

Arrays = Mapping[str, np.ndarray]

LIMIT_S = 120.0  # a model may have a Loop that never ends
ARRAYS = re.compile(r"tensor\((?!float[48]|u?int[24]\))")  # types that arrays have: NumPy lacks narrow numbers
_ALIGNMENT_BYTES = 64  # as onnxruntime's own memory
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def run(session: onnxruntime.InferenceSession, feeds: Arrays, names: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """The outputs of a session by name, all or those of `names`, for arrays by name; bfloat16 is ml_dtypes'. InputError
    where onnxruntime refuses the arrays or does not end within `LIMIT_S`, UnsupportedError where an output is no array
    that noyau has."""
    names = names or [output.name for output in session.get_outputs()]
    ends = {name: ort_value(array) for name, array in feeds.items()}
    options = load_onnxruntime().RunOptions()
    watch = threading.Timer(LIMIT_S, setattr, (options, "terminate", True))
    watch.daemon = True
    watch.start()
    try:
        values = session.run_with_ort_values(names, ends, options)
    except Exception as error:
        if options.terminate:
            raise InputError(f"a run did not end within {LIMIT_S:g} s and was ended") from error
        raise InputError(f"onnxruntime does not run: {one_line(error)}") from error
    finally:
        watch.cancel()
    return {name: _array(name, value) for name, value in zip(names, values, strict=True)}


def try_apart(content: bytes, folder: Path, arrays: Arrays) -> None:
    """Run a model, not optimised, in a process of its own. InputError where the process crashes or hangs."""
    try:
        with Worker("a process that tries it", LIMIT_S) as worker:
            worker.ask(_run_once, content, folder, arrays)
    except CheckError as error:
        raise InputError(f"onnxruntime fails where inputs have no cells: {error}") from error


def _run_once(content: bytes, folder: Path, arrays: Arrays) -> None:
    session = open_session(content, folder=folder, optimized=False, prepacked=False)
    feeds = {end.name: arrays[end.name] for end in session.get_inputs()}
    run(session, feeds, [end.name for end in session.get_outputs() if ARRAYS.match(end.type)])


def run_node(model: ModelProto, feeds: Mapping[str, Any]) -> Sequence[Any]:
    """Results of a model of one node with bodies or of onnxruntime's own; UnsupportedError where it does not run."""
    node = model.graph.node[0]
    if not any(subgraphs(node)) and node.domain != "com.microsoft":
        raise UnsupportedError(f"{node.op_type} has no bodies")  # and runs in float64 elsewhere
    try:
        return _open(model.SerializeToString()).run(None, dict(feeds))  # type: ignore[no-any-return]
    except Exception as error:
        raise UnsupportedError(f"onnxruntime does not run: {one_line(error)}") from error


@lru_cache(maxsize=8)
def _open(content: bytes) -> onnxruntime.InferenceSession:
    return open_session(content, optimized=False, prepacked=False)


def ort_value(array: np.ndarray, device: str = "cpu") -> onnxruntime.OrtValue:
    """An array as an OrtValue on a device; on the CPU it shares the memory of a contiguous array."""
    runtime = load_onnxruntime()
    packed = np.require(array, requirements="C")  # ascontiguousarray would make a scalar one-dimensional
    if packed.dtype != _BFLOAT16:
        return runtime.OrtValue.ortvalue_from_numpy(packed, device, 0)
    if device != "cpu":
        raise UnsupportedError("onnxruntime takes no bfloat16 on a GPU from Python")
    if not hasattr(runtime.OrtValue, "ortvalue_from_numpy_with_onnx_type"):
        raise UnsupportedError(f"onnxruntime {runtime.__version__} takes no bfloat16 from Python; install a newer one")
    return runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(packed.view(np.uint16), DType.BF16.onnx)


def _array(name: str, value: Any) -> np.ndarray:
    if not ARRAYS.match(value.data_type()):
        raise UnsupportedError(f"the output {name!r} is {value.data_type()}, not an array; remove it from the outputs")
    if value.data_type() != "tensor(bfloat16)":
        return np.asarray(value.numpy())
    shape = tuple(value.shape())
    size_bytes = int(np.prod(shape, dtype=np.int64)) * _BFLOAT16.itemsize
    return np.ndarray(shape, _BFLOAT16, ctypes.string_at(value.data_ptr(), size_bytes)).copy()


@dataclass(frozen=True, slots=True)
class BoundRun:
    """A run of a session, as a callable. `outputs`: the arrays that it writes, by name, without outputs of strings;
    `on_gpu`: its outputs on a GPU, which `results` copies into these arrays."""

    session: onnxruntime.InferenceSession
    binding: Any
    outputs: Arrays
    held: tuple[Any, ...]  # the memory that the binding points into
    on_gpu: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> None:
        self.session.run_with_iobinding(self.binding)

    def results(self) -> Arrays:
        """The outputs of the last run."""
        for name, value in self.on_gpu.items():
            self.outputs[name][...] = value.numpy()
        return self.outputs

    def poison(self) -> None:
        """Poison the outputs, so that a run has to write every cell again."""
        poison(tuple(self.outputs.values()))
        for name, value in self.on_gpu.items():
            value.update_inplace(self.outputs[name])


@dataclass(slots=True)
class PlainRun:
    """A run of a session that allocates its outputs each time, as a callable: for strings, for values that are no
    tensors, and for models timed as users call them, where this may matter. `values`: the outputs of the last run."""

    session: onnxruntime.InferenceSession
    arrays: dict[str, np.ndarray]
    values: Sequence[Any] = ()

    def __call__(self) -> None:
        try:
            self.values = self.session.run(None, self.arrays)
        except Exception as error:
            raise InputError(f"onnxruntime does not run: {one_line(error)}") from error

    def results(self) -> Arrays:
        """The outputs of the last run that are arrays of numbers."""
        named = zip(self.session.get_outputs(), self.values, strict=False)
        return {end.name: value for end, value in named if isinstance(value, np.ndarray) and not value.dtype.hasobject}

    def poison(self) -> None:
        """Forget the outputs of the last run."""
        self.values = ()


def ends_run(session: onnxruntime.InferenceSession, arrays: Arrays) -> BoundRun | PlainRun:
    """A bound run, or a plain one where an input or output cannot be bound. InputError where the arrays are refused."""
    try:
        return bound_run(session, arrays)
    except UnsupportedError:
        plain = PlainRun(session, dict(arrays))
        plain()
        return plain


def bound_run(session: onnxruntime.InferenceSession, arrays: Arrays, like: Arrays | None = None) -> BoundRun:
    """A callable that runs the session on copies of these arrays, on its device, with its ends in fixed memory.

    The outputs have the shapes of `like`, the outputs of a run of the session; without it the session runs once for
    them. The outputs are poisoned. InputError where it refuses the arrays, UnsupportedError where an input is strings,
    or an output no tensor or not of its declared shape. For timing, open the session with a number of threads."""
    like = first_outputs(session, arrays) if like is None else like
    binding, held = session.io_binding(), []
    device = "cuda" if session.get_providers()[0] == "CUDAExecutionProvider" else "cpu"
    for name, array in arrays.items():
        copy = _allocate_aligned(array.shape, array.dtype)
        copy[...] = array
        held.append(ort_value(copy, device))
        binding.bind_ortvalue_input(name, held[-1])
    outputs, declared = {}, {end.name: end.shape for end in session.get_outputs()}
    for name, array in like.items():
        if any(isinstance(dim, int) and dim != n for dim, n in zip(declared[name], array.shape, strict=False)):
            fault = f"the output {name!r} is {list(array.shape)}, and declared to be {declared[name]}"
            raise UnsupportedError(f"{fault}: onnxruntime warns of that, and writes none elsewhere")
        if array.dtype.hasobject:
            binding.bind_output(name)
            continue
        outputs[name] = _allocate_aligned(array.shape, array.dtype)
        held.append(ort_value(outputs[name], device))
        binding.bind_ortvalue_output(name, held[-1])
    on_gpu = {} if device == "cpu" else dict(zip(outputs, held[len(arrays) :], strict=True))
    bound = BoundRun(session, binding, outputs, tuple(held), on_gpu)
    bound.poison()
    return bound


def first_outputs(session: onnxruntime.InferenceSession, arrays: Arrays) -> Arrays:
    """Outputs of the session for these arrays. Errors as in `bound_run`."""
    known = {value.name for value in (*session.get_inputs(), *session.get_overridable_initializers())}
    for name, array in arrays.items():
        if name not in known:
            raise InputError(f"the model has no input {name!r}; it has {', '.join(map(repr, sorted(known)))}")
        if array.dtype.hasobject or array.dtype.kind in "US":
            raise UnsupportedError(f"the input {name!r} holds strings, which cannot be bound; run the session itself")
    return run(session, arrays)


def _allocate_aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    size_bytes = math.prod(shape) * dtype.itemsize
    block = np.empty(size_bytes + _ALIGNMENT_BYTES, np.uint8)
    return block[-block.ctypes.data % _ALIGNMENT_BYTES :][:size_bytes].view(dtype).reshape(shape)


MOST_BINDINGS, FEW_BINDINGS = 256, 4
_LEAST_LOOKS = 3
_SHORT_S = 0.03  # a shorter run depends on what another process has left in the caches
_FEW_BYTES = 1 << 16  # of outputs: copies of fewer take no time beside a call of a session as users make it
_LONG_S = 0.1  # a longer run is not repeated just to see whether its outputs are the same


def open_job(model: Path, inputs: Sequence[Mapping[str, Any]], *, cold: bool, **options: Any) -> ServedSession:
    """In the worker: the session, opened with some `options` of `open_session` and bound."""
    start_s, whole = seconds(), options.pop("whole")
    result = ServedSession([], 0.0, opened=open_session(model.read_bytes(), **options), whole=whole)
    result.feed(inputs, cold)
    result.open_s = seconds() - start_s
    return result


@dataclass(slots=True)
class ServedSession:
    """Bound runs of one session, used in turn; the outputs of timed runs are checked now and then, at random. `run_s`:
    the seconds of a run on its inputs, of the second one if the first was not long; `cold`, `whole`: as in a Job.

    `expected`: the first run's outputs, without random ones; `unsure`: these are not known yet, as a run is long."""

    runs: Sequence[BoundRun | PlainRun]
    open_s: float
    run_s: float = 0.0
    turn: int = 0
    looks: int = 0
    samples: int = 0
    wrong: str = ""
    expected: dict[str, bytes] = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    opened: onnxruntime.InferenceSession | None = None
    unsure: bool = False
    cold: bool = False
    whole: bool = False

    def feed(self, inputs: Sequence[Mapping[str, Any]], cold: bool) -> None:
        """Run on these inputs from now on; the memory of the former inputs is freed first."""
        assert self.opened is not None
        self.runs, self.turn, self.samples, self.looks, self.cold = [], 0, 0, 0, cold
        arrays, start_s = read_arrays(inputs), seconds()
        outputs = first_outputs(self.opened, arrays)
        self.run_s = seconds() - start_s
        taken = sum(array.nbytes for array in (*arrays.values(), *outputs.values()))
        count = min(cold_sets(taken), MOST_BINDINGS) if cold else min(hot_sets(taken), FEW_BINDINGS)
        self.runs = [bound_run(self.opened, arrays, outputs) for _ in range(count)]
        self.expected = {name: array.tobytes() for name, array in outputs.items() if not array.dtype.hasobject}
        self.unsure = self.run_s > _LONG_S
        if not self.unsure:
            self.run_s = self_timed(self.runs[:1])
            again = _outputs(self.runs[0])
            self.expected = {name: content for name, content in self.expected.items() if again[name] == content}
        is_plain = all(each.dtype != _BFLOAT16 for each in (*arrays.values(), *outputs.values()))
        if self.whole and is_plain and sum(each.nbytes for each in outputs.values()) < _FEW_BYTES:
            self.runs = [PlainRun(self.opened, {name: a.copy() for name, a in arrays.items()}) for _ in self.runs]

    def lasts(self, calls: int) -> float:
        """Seconds of so many calls. Before short calls that are not to be cold, each binding that they use runs once,
        to refill the caches that another process has used, and to wake the threads."""
        self.samples += 1
        chosen = int(self.rng.integers(calls))
        order = [self.runs[(self.turn + k) % len(self.runs)] for k in range(calls)]
        self.turn += calls
        if not self.cold and self.run_s < _SHORT_S:
            for run in order[: len(self.runs)]:
                run()
        looks = self.samples <= _LEAST_LOOKS or self.rng.random() < 1 / self.samples
        if looks:
            order[chosen].poison()
        took_s = self_timed(order[: chosen + 1])
        if looks:
            self._look(order[chosen])
        return took_s + self_timed(order[chosen + 1 :])

    def tell(self) -> dict[str, Any]:
        """The seconds of opening and of a run (`run_s`), and the numbers of `verified` runs and of bindings. CheckError
        where one of the timed runs that were verified gave other outputs than the first run."""
        if self.wrong:
            raise CheckError(self.wrong)
        return {"open_s": self.open_s, "run_s": self.run_s, "verified": self.looks, "bindings": len(self.runs)}

    def _look(self, run: BoundRun | PlainRun) -> None:
        self.looks += 1
        outputs = _outputs(run)
        for name in [name for name, content in self.expected.items() if outputs[name] != content]:
            if self.unsure and self._is_random(run, name):  # it cannot be compared
                del self.expected[name]
            else:
                self.wrong = f"a timed run gave another {name[:100]!r} than the first one did"

    def _is_random(self, run: BoundRun | PlainRun, name: str) -> bool:
        """Whether two untimed runs differ in an output."""
        results = []
        for _ in "ab":
            run.poison()
            run()
            results.append(_outputs(run)[name])
        return results[0] != results[1]


def _outputs(run: BoundRun | PlainRun) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in run.results().items()}


def self_timed(order: Sequence[Callable[[], object]]) -> float:
    """The seconds of these calls, one after the other."""
    if not order:
        return 0.0
    start_s = seconds()
    for run in order:
        run()
    return seconds() - start_s
