"""The distance of the outputs of a model from those of its fused twin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noyau.errors import CheckError, NoyauError
from noyau.hosts.onnxruntime.runs import BoundRun, PlainRun, ends_run
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.jobs.optimize.onnx.kernel_timing import Arrays, OnnxBench, stamps
from noyau.kernels.certificates import timing_key
from noyau.timing.output_checks import is_float
from noyau.toolchain import cache
from noyau.workers.array_files import read_arrays

_ROUNDING = 1e-3  # what two ways to round may come to; where it is more, the reason is looked for


def models_apart(
    before: Path,
    after: Path,
    *,
    library: Path | None,
    folder: Path,
    threads: int,
    prepacked: bool,
    inputs: Sequence[Mapping[str, Any]],
) -> float | None:
    """In the worker: `apart` of a model and its twin. CheckError where the fused one alone does not open or run."""
    arrays = read_arrays(inputs)

    def run_of(model: Path, kernels: Path | None) -> BoundRun | PlainRun:
        content = model.read_bytes()
        session = open_session(content, kernels, threads=threads, folder=folder, prepacked=prepacked)
        return ends_run(session, arrays)

    run_before = run_of(before, None)
    try:
        run_after = run_of(after, library)
    except NoyauError as error:
        raise CheckError(f"with its kernels, {error}") from error
    return output_distance(run_before, run_after)


def output_distance(before: BoundRun | PlainRun, after: BoundRun | PlainRun) -> float | None:
    """Distance of the outputs of two callables, as `Whole` has it."""
    before()
    after()
    first = {name: array.copy() for name, array in before.outputs.items()}
    distance = max((_distance(first[name], after.outputs[name]) for name in first), default=None)
    if distance is None or distance < _ROUNDING:
        return distance
    before()  # a model that draws random numbers is apart from itself
    again = max(_distance(first[name], before.outputs[name]) for name in first)
    return distance if again < _ROUNDING else None


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    if not is_float(one.dtype) or one.shape != other.shape:
        return 0.0 if np.array_equal(one, other) else np.inf
    one, other = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(one)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return np.inf
    largest = np.abs(one[finite]).max(initial=0.0) or 1.0
    return float(np.abs(one[finite] - other[finite]).max(initial=0.0) / largest)


def twin_distance(bench: OnnxBench, arrays: Arrays) -> float | None:
    """As `apart` of the model and its twin, in a process of its own; or what an earlier run found."""
    original, models = bench.original, (bench.original.model, bench.fused)
    contents = [model.SerializeToString() for model in models]
    values = (part for name, array in sorted(arrays.items()) for part in (name, array.tobytes()))
    key = timing_key(("apart", *contents, *stamps(original.model, original.folder), *values), arrays, bench.threads)
    known = cache.recall(key)
    if isinstance(known, dict) and "apart" in known:
        return known["apart"]  # type: ignore[no-any-return]
    with bench.workers.written(arrays) as (folder, inputs):
        for name, content in zip(("before", "after"), contents, strict=True):
            (folder / name).write_bytes(content)
        distance = bench.workers.workers[0].ask(
            models_apart,
            folder / "before",
            folder / "after",
            library=bench.library,
            folder=original.folder.absolute(),
            threads=bench.threads,
            prepacked=original.prepacked,
            inputs=inputs,
        )
    cache.keep(key, {"apart": distance})
    return distance
