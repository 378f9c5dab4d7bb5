"""Sessions of onnxruntime: opened, run, and as callables that only run, whose inputs and outputs lie in memory that was
bound beforehand. The only file that imports onnxruntime.

For a runtime that looks for external data nowhere else, a model's bytes become a file beside links to its data."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from noyau.dtypes import DType
from noyau.errors import (
    BuildError,
    InputError,
    MissingExtraError,
    ModelError,
    OutputError,
    UnsupportedError,
)

if TYPE_CHECKING:
    import onnxruntime


_MARK = b"location"  # the key under which a tensor names its file


@contextlib.contextmanager
def beside_its_data(content: bytes, folder: Path) -> Iterator[Path | bytes]:
    """The path of a file with these bytes, in a temporary folder with links to what they name of `folder`; both are
    gone afterwards. The bytes themselves where they name no data. OutputError where there is no room for the file."""
    if _MARK not in content:
        yield content
        return
    try:
        with tempfile.TemporaryDirectory(prefix="noyau-") as name:
            for entry in os.scandir(folder):
                if os.fsencode(entry.name) in content:
                    os.symlink(os.path.abspath(entry.path), os.path.join(name, entry.name))
            path = Path(name, f"{secrets.token_hex(8)}.onnx")
            path.write_bytes(content)
            yield path
    except OSError as error:
        raise OutputError(f"a copy of the model for onnxruntime cannot be written: {error.strerror}") from error


_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
OPTIMIZED, WEIGHTS = "optimized.onnx", "weights.bin"


def open_session(
    model: Path | bytes,
    library: Path | None = None,
    *,
    threads: int = 0,
    optimized: bool = True,
    folder: Path | None = None,
    prepacked: bool = True,
    trace: Path | None = None,
) -> onnxruntime.InferenceSession:
    """A CPU session of a model file, or of a model's bytes, with a library's operators where one is given.

    `folder` is where the external data of a model's bytes lies. `prepacked` False leaves weights as they are in the
    file: opening is quick and takes no memory, running is slower. `trace` is a folder: what onnxruntime made of the
    model is left there (OPTIMIZED, with the tensors of 1 KiB or more in WEIGHTS), and `session.end_profiling()` writes
    a file there on when each node ran.

    `threads` 0 leaves the number to onnxruntime. Idle threads sleep: sessions in one process would slow each other.
    ModelError where onnxruntime refuses the model, BuildError where the library.
    """
    runtime = _import()
    options = _options(threads, optimized, folder, prepacked)
    if trace is not None:
        _leave_traces(options, trace.absolute())
    if library is not None:
        try:
            options.register_custom_ops_library(str(library.absolute()))
        except Exception as error:
            raise BuildError(f"onnxruntime does not load {str(library)!r}: {one_line(error)}") from error
    with _with_data(model, folder, runtime.__version__) as content:
        try:
            return runtime.InferenceSession(
                content if isinstance(content, bytes) else str(content), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            title = "the model" if isinstance(model, bytes) else repr(str(model))
            raise ModelError(f"onnxruntime does not open {title}: {one_line(error)}") from error


def _with_data(model: Path | bytes, folder: Path | None, release: str) -> AbstractContextManager[Path | bytes]:
    """The model as this release of onnxruntime opens it: before 1.22, it finds external data beside a file alone."""
    if isinstance(model, bytes) and folder is not None and _minor(release) < 22:
        return beside_its_data(model, folder)
    return nullcontext(model)


def _minor(release: str) -> int:
    """17 of 1.17.3; of another major release one that is newer than all that are known."""
    major, minor, *_ = [int(part) for part in re.findall(r"\d+", release)] + [0, 0]
    return minor if major == 1 else 1000


def _options(threads: int, optimized: bool, folder: Path | None, prepacked: bool) -> Any:
    """The options of `open_session` as onnxruntime takes them."""
    runtime = _import()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what it would print is in the exception
    for pool in ("intra_op", "inter_op"):
        options.add_session_config_entry(f"session.{pool}.allow_spinning", "0")
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder.absolute()))
    if not prepacked:
        options.add_session_config_entry("session.disable_prepacking", "1")
    levels = runtime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    return options


def _leave_traces(options: Any, folder: Path) -> None:
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "trace")
    options.optimized_model_filepath = str(folder / OPTIMIZED)
    for key, entry in (("file_name", WEIGHTS), ("min_size_in_bytes", "1024")):
        options.add_session_config_entry(f"session.optimized_model_external_initializers_{key}", entry)


def run(
    session: onnxruntime.InferenceSession, feeds: Mapping[str, np.ndarray], names: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """The outputs of a session, or those of some names, by name, for arrays by name; bfloat16 goes in and comes out as
    ml_dtypes.bfloat16.

    InputError where onnxruntime refuses the arrays, UnsupportedError where an output is no array that noyau has.
    """
    names = names or [output.name for output in session.get_outputs()]
    try:
        values = session.run_with_ort_values(names, {name: ort_value(array) for name, array in feeds.items()})
    except UnsupportedError:
        raise
    except Exception as error:
        raise InputError(f"onnxruntime does not run: {one_line(error)}") from error
    return {name: _array(name, value) for name, value in zip(names, values, strict=True)}


def ort_value(array: np.ndarray) -> onnxruntime.OrtValue:
    """An array as onnxruntime takes it; it shares the memory of a contiguous array."""
    runtime = _import()
    packed = np.require(array, requirements="C")  # ascontiguousarray would make a scalar one-dimensional
    if packed.dtype != _BFLOAT16:
        return runtime.OrtValue.ortvalue_from_numpy(packed)
    if not hasattr(runtime.OrtValue, "ortvalue_from_numpy_with_onnx_type"):
        raise UnsupportedError(f"onnxruntime {runtime.__version__} takes no bfloat16 from Python; install a newer one")
    return runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(packed.view(np.uint16), DType.BF16.onnx)


def version() -> str:
    """The version of the onnxruntime that is installed; MissingExtraError where there is none."""
    return str(_import().__version__)


def _array(name: str, value: Any) -> np.ndarray:
    if not value.is_tensor():
        raise UnsupportedError(f"the output {name!r} is {value.data_type()}, not a tensor; remove it from the outputs")
    if value.data_type() != "tensor(bfloat16)":
        return np.asarray(value.numpy())
    shape = tuple(value.shape())
    if 0 in shape:
        return np.empty(shape, _BFLOAT16)
    size_bytes = int(np.prod(shape, dtype=np.int64)) * _BFLOAT16.itemsize
    return np.frombuffer(ctypes.string_at(value.data_ptr(), size_bytes), _BFLOAT16).reshape(shape).copy()


def _import() -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise MissingExtraError("onnxruntime is not installed; run: pip install 'noyau[onnx]'") from error
    except ImportError as error:
        raise MissingExtraError(f"onnxruntime is installed and does not load: {one_line(error)}") from error
    return onnxruntime


def one_line(error: Exception) -> str:
    """The message of onnxruntime as one line that is safe to print: names of the model are in it."""
    message = " ".join(str(error).split()) or type(error).__name__
    return "".join(letter if letter.isprintable() else "?" for letter in message)[:600]


Arrays = Mapping[str, np.ndarray]
_ALIGNMENT_BYTES = 64  # as onnxruntime's own memory
_POISON = 0xA5


@dataclass(frozen=True, slots=True)
class BoundRun:
    """A run of a session, as a callable. `outputs` is where it writes, by name: outputs of strings are not there."""

    session: onnxruntime.InferenceSession
    binding: Any
    outputs: Arrays
    held: tuple[Any, ...]  # what the binding points into

    def __call__(self) -> None:
        self.session.run_with_iobinding(self.binding)

    def poison(self) -> None:
        """Make the outputs no run's: a run has to write every cell again."""
        for array in self.outputs.values():
            array.reshape(-1).view(np.uint8)[:] = _POISON


@dataclass(frozen=True, slots=True)
class PlainRun:
    """A run of a session that makes its ends anew each time, as a callable: for strings, and for what is no tensor."""

    session: onnxruntime.InferenceSession
    arrays: Arrays

    def __call__(self) -> None:
        self.session.run(None, dict(self.arrays))

    @property
    def outputs(self) -> Arrays:
        """Nothing is kept."""
        return {}


def ends_run(session: onnxruntime.InferenceSession, arrays: Arrays) -> BoundRun | PlainRun:
    """A bound run, or a plain one where an end cannot be bound. InputError where the session refuses the arrays."""
    try:
        return bound_run(session, arrays)
    except UnsupportedError:
        plain = PlainRun(session, arrays)
    try:
        plain()
    except Exception as error:
        raise InputError(f"onnxruntime does not run: {one_line(error)}") from error
    return plain


def bound_run(session: onnxruntime.InferenceSession, arrays: Arrays, like: Arrays | None = None) -> BoundRun:
    """A callable that runs the session on copies of these arrays and allocates nothing for its ends.

    Its outputs are shaped as those of `like`, what a run of the session gave; without it the session runs once, to show
    that. The outputs are poisoned. InputError where it refuses the arrays, UnsupportedError where an input is strings
    or an output is no tensor. For timing, open sessions with all optimizations, no spinning and a number of threads:
    `open_session(model, library, threads=2)`."""
    like = first_outputs(session, arrays) if like is None else like
    binding, held = session.io_binding(), []
    for name, array in arrays.items():
        copy = _aligned(array.shape, array.dtype)
        copy[...] = array
        held.append(ort_value(copy))
        binding.bind_ortvalue_input(name, held[-1])
    outputs = {}
    for name, array in like.items():
        if array.dtype.hasobject:
            binding.bind_output(name)
            continue
        outputs[name] = _aligned(array.shape, array.dtype)
        held.append(ort_value(outputs[name]))
        binding.bind_ortvalue_output(name, held[-1])
    bound = BoundRun(session, binding, outputs, tuple(held))
    bound.poison()
    return bound


def first_outputs(session: onnxruntime.InferenceSession, arrays: Arrays) -> Arrays:
    """Outputs of the session for these arrays. Errors as those of `bound_run`."""
    known = {value.name for value in (*session.get_inputs(), *session.get_overridable_initializers())}
    for name, array in arrays.items():
        if name not in known:
            raise InputError(f"the model has no input {name!r}; it has {', '.join(map(repr, sorted(known)))}")
        if array.dtype.hasobject or array.dtype.kind in "US":
            raise UnsupportedError(f"the input {name!r} holds strings, which cannot be bound; run the session itself")
    return run(session, arrays)


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    size_bytes = math.prod(shape) * dtype.itemsize
    block = np.empty(size_bytes + _ALIGNMENT_BYTES, np.uint8)
    start = -block.ctypes.data % _ALIGNMENT_BYTES
    return block[start : start + size_bytes].view(dtype).reshape(shape)
