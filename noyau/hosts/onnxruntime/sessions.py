"""The opening of onnxruntime sessions: no other file opens one.

For releases that find external data beside a file only, a model's bytes become a file beside links to its data."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noyau.errors import BuildError, DeviceError, MissingExtraError, ModelError, OutputError

if TYPE_CHECKING:
    import onnxruntime

OPTIMIZED, WEIGHTS = "optimized.onnx", "weights.bin"
_IN_CPP = re.compile(  # how a message of onnxruntime begins, and its place: a line and a function of C++, a condition
    r"\[ONNXRuntimeError\] : \d+ : \w+ : (?:Non-zero status code returned while running )?"
    r"|\S*/onnxruntime/core/\S+:\d+ (?:[^()]*\([^()]*\) ?(?:const )?)?(?:.{1,200}? was false\. )?"
)
_PROVIDERS = {"cpu": ["CPUExecutionProvider"], "cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"]}


@contextmanager
def beside_its_data(content: bytes, folder: Path) -> Iterator[Path | bytes]:
    """The path of a file with these bytes, in a temporary folder with links to the files of `folder` that they name;
    that is removed afterwards. The bytes themselves where they name no data. OutputError where there is no room."""
    if b"location" not in content:  # the key under which a tensor names its file
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


def open_session(
    model: Path | bytes,
    library: Path | None = None,
    *,
    threads: int = 0,
    optimized: bool = True,
    folder: Path | None = None,
    prepacked: bool = True,
    trace: Path | None = None,
    device: str = "cpu",
) -> onnxruntime.InferenceSession:
    """A session of a model file, or of a model's bytes, with the operators of a library if there is one; on the CPU, or
    for `device` "cuda" on the first GPU.

    `folder` is where the external data of a model's bytes lies. `prepacked` False leaves weights as they are in the
    file: opening is quick and takes no memory, running is slower. `trace` is a folder: the model as onnxruntime has
    optimised it is written there (OPTIMIZED, with the tensors of 1 KiB or more in WEIGHTS), and
    `session.end_profiling()` writes a file there with the times of each node.

    `threads` 0 leaves the number to onnxruntime. Idle threads sleep: sessions in one process would slow each other.
    ModelError where onnxruntime refuses the model, BuildError for the library, DeviceError without the provider."""
    runtime = load_onnxruntime()
    providers, options = _providers_of(device), _options(threads, optimized, folder, prepacked, trace)
    if library is not None:
        try:
            options.register_custom_ops_library(str(library.absolute()))
        except Exception as error:
            raise BuildError(f"onnxruntime does not load {str(library)!r}: {one_line(error)}") from error
    with _with_data(model, folder, runtime.__version__) as content:
        try:
            source = content if isinstance(content, bytes) else str(content)
            session = runtime.InferenceSession(source, options, providers=providers)
        except Exception as error:
            title = "the model" if isinstance(model, bytes) else repr(str(model))
            raise ModelError(f"onnxruntime does not open {title}: {one_line(error)}") from error
    if {*_PROVIDERS[device]} <= {*session.get_providers()}:  # else it is on the CPU, and onnxruntime only warns
        return session
    remedy = "it needs a GPU, its driver, cuBLAS and cuDNN; onnxruntime.preload_dlls() says which of these do not load"
    raise DeviceError(f"onnxruntime's CUDA provider does not start: {remedy}")


def _providers_of(device: str) -> list[str]:
    """The providers of a session on a device. DeviceError where onnxruntime lacks the first one."""
    if lacks := missing_provider(device):
        raise DeviceError(lacks)
    if device != "cpu" and hasattr(runtime := load_onnxruntime(), "preload_dlls"):  # finds cuDNN in wheels
        with redirect_stdout(None):
            runtime.preload_dlls(directory="")
    return list(_PROVIDERS[device])


def _with_data(model: Path | bytes, folder: Path | None, release: str) -> AbstractContextManager[Path | bytes]:
    """The model in the form that this release of onnxruntime opens: before 1.22, it finds data beside a file only."""
    is_old = [1] <= [int(part) for part in re.findall(r"\d+", release)] < [1, 22]
    return beside_its_data(model, folder) if is_old and folder and isinstance(model, bytes) else nullcontext(model)


def _options(threads: int, optimized: bool, folder: Path | None, prepacked: bool, trace: Path | None) -> Any:
    """The options of `open_session` as onnxruntime takes them."""
    runtime = load_onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4  # its messages are in the exception
    for pool in ("intra_op", "inter_op"):
        options.add_session_config_entry(f"session.{pool}.allow_spinning", "0")
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder.absolute()))
    options.add_session_config_entry("session.disable_prepacking", "0" if prepacked else "1")
    levels = runtime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    if trace is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(trace.absolute() / "trace")
        options.optimized_model_filepath = str(trace.absolute() / OPTIMIZED)
        for key, entry in (("file_name", WEIGHTS), ("min_size_in_bytes", "1024")):
            options.add_session_config_entry(f"session.optimized_model_external_initializers_{key}", entry)
    return options


def missing_provider(device: str) -> str:
    """Why onnxruntime has no provider for a device, or an empty text."""
    runtime = load_onnxruntime()
    if {*_PROVIDERS[device]} <= {*runtime.get_available_providers()}:
        return ""
    return f"onnxruntime {runtime.__version__} has no CUDA provider: install onnxruntime-gpu in its place"


def load_onnxruntime() -> Any:
    """The module onnxruntime. MissingExtraError where there is none, or none that loads."""
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise MissingExtraError("onnxruntime is not installed; run: pip install 'noyau-kernels[onnx]'") from error
    except ImportError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # it arrived while the library was loaded
            raise error.__cause__ from None
        raise MissingExtraError(f"onnxruntime is installed and does not load: {one_line(error)}") from error
    return onnxruntime


def one_line(error: Exception) -> str:
    """The message of onnxruntime as one line, safe to print (names of the model are in it), without places in C++."""
    message = _IN_CPP.sub("", " ".join(str(error).split())) or type(error).__name__
    return "".join(letter if letter.isprintable() else "?" for letter in message)[:600]
