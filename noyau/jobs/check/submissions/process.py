"""The process with torch, Triton and Numba in memory: each reference and each submission runs in a fork of it.

This file imports none of them, so that callers need not. A fork is not trusted: it returns arrays as a line of JSON
that describes them, followed by their bytes."""

import gc
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import MissingExtraError, NoyauError, UnsupportedError
from noyau.toolchain import cache
from noyau.workers.confinement import Ending, Limits, run_confined

JOBS = {"truth": "write_truth", "verdicts": "write_verdicts", "answers": "write_answers"}
_FOLDER = "noyau.jobs.check.submissions"
_PRELOADED = ("torch_answers", "torch_truth")
_DTYPES = {dtype.numpy.name: dtype for dtype in DType if dtype is not DType.OTHER}
_HOOKS = ("noyau.sanitizer.scripts.numba_hooks", "noyau.sanitizer.scripts.triton_hooks")


def run_job(job: str, wish: Mapping[str, Any], folder: str, readable: tuple[str, ...], limits: Limits) -> Ending:
    """Run a job on a folder in a confined fork of this process. MissingExtraError if a package that jobs need is not
    installed."""
    remedy = "run: pip install 'noyau-kernels[triton,numba]'"
    for name in ("torch", "triton", "numba"):
        if find_spec(name) is None:
            raise MissingExtraError(f"{name} is not installed, and submissions need it; {remedy}")
    gc.disable()  # saves a tenth of the time of imports, none of which is garbage, here or in a fork
    modules = [import_module(f"{_FOLDER}.{name}") for name in _PRELOADED]
    numba_hooks, _ = map(import_module, _HOOKS)
    with suppress(ImportError):  # each fork reports the error; the import here saves each a second
        numba_hooks.import_cuda(numba_hooks.CUDA_HOOKS)
    gc.freeze()
    gc.enable()
    # Code that is compiled on first use is compiled here: a confined fork cannot write to the cache.
    shadow = import_module("noyau.sanitizer.engine").Shadow()
    import_module("noyau.sanitizer.numba_cuda.arrays").LaunchRecorder(1, shadow)
    if "cpp_extension" in (text := "".join(wish.get("files", {}).values())) or "__global__" in text:
        with suppress(NoyauError):  # a missing gcc is reported when it is needed
            import_module("noyau.sanitizer.c.build").runtime(in_cpp=True)
    write: Callable[..., None] = next(vars(each)[JOBS[job]] for each in modules if JOBS[job] in vars(each))
    own = [sys.prefix, sys.base_prefix, str(files("noyau")), str(cache.folder()), *filter(None, sys.path), *readable]
    return run_confined(partial(write, wish, Path(folder)), Path(folder), own, limits)


def write_results(path: Path, arrays: Sequence[np.ndarray], facts: Mapping[str, Any]) -> None:
    """Write arrays, and facts on them. UnsupportedError for a dtype that noyau does not have."""
    strange = next((each.dtype for each in arrays if each.dtype.name not in _DTYPES), None)
    if strange is not None:
        raise UnsupportedError(f"values of {strange} are not compared; there are {', '.join(_DTYPES)}")
    shapes = [{"dtype": each.dtype.name, "shape": list(each.shape)} for each in arrays]
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(json.dumps({"arrays": shapes, "facts": dict(facts)}).encode() + b"\n")
        for each in arrays:
            file.write(np.ascontiguousarray(each).tobytes())
    partial.replace(path)  # atomically


def read_results(path: Path) -> tuple[list[np.ndarray], dict[str, Any]] | None:
    """The arrays and the facts; None if the file is missing or inconsistent."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.readline(1 << 20))
            arrays = []
            for each in header["arrays"]:
                dtype, shape = _DTYPES[each["dtype"]], [int(extent) for extent in each["shape"]]
                if min(shape, default=0) < 0:
                    return None
                size = math.prod(shape) * dtype.bytes
                content = file.read(size) if 0 <= size <= path.stat().st_size else b""
                arrays.append(np.frombuffer(content, dtype.numpy).reshape(shape))
            return arrays, dict(header["facts"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
