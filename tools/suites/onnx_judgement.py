"""Judgement of a model with its kernels: `python -m tools.suites.onnx_judgement MODEL.onnx FUSED.onnx SIZES`.

Its outputs on several random inputs, with its library and without, may be 10 times as far from float64 as those of the
original; its time is taken in turn with that of the original, by the processor's clock of one thread. Where it seems
slower, that is done once more, in three times as many sessions, and only that counts: sessions of one file differ by
two percent."""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from noyau.errors import NoyauError, UnsupportedError
from noyau.frontends.onnx_messages import subgraphs
from noyau.hosts.onnxruntime.inputs import graph_names, inputs_at, sizes_for
from noyau.hosts.onnxruntime.model_files import library_path
from noyau.hosts.onnxruntime.runs import run
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.hosts.onnxruntime.source_model import SourceModel, open_model
from noyau.ir.graph_interpreter import evaluate

Arrays = Mapping[str, np.ndarray]
SEEDS, OPENINGS, BUDGET_S, LEAST_RATIO, MOST_ERRORS = 3, 3, 1.0, 0.99, 10.0
ROUNDINGS = 1.7  # as many units of rounding are allowed for at least


def floor_of(original: SourceModel) -> float:
    """The least error that is allowed for: roundings of float32, in a model whose floats are all doubles of float64."""
    widths = {node.dtype.bytes for node in original.imported.graph.nodes if node.dtype.is_float}
    return ROUNDINGS * float(np.finfo(np.float64 if widths == {8} else np.float32).eps)


def distance(truth: Arrays, arrays: Arrays, least: float = 0.0) -> float:
    """How far arrays are from others at most, over the largest of each, or `least` if that is more; infinite where
    others than floats differ."""
    worst = 0.0
    for name, exact in truth.items():
        one = arrays[name]
        if one.shape != exact.shape or one.dtype.kind not in "fV":
            worst = max(worst, 0.0 if np.array_equal(one, exact) else math.inf)
            continue
        one, exact = one.astype(np.float64), exact.astype(np.float64)
        finite = np.isfinite(exact)
        if not np.array_equal(one[~finite], exact[~finite], equal_nan=True):
            return math.inf
        largest = np.abs(exact[finite]).max(initial=least) or 1.0
        worst = max(worst, float(np.nan_to_num(np.abs(one - exact)[finite], nan=math.inf).max(initial=0.0) / largest))
    return worst


def outputs_of(session: Any, arrays: Arrays) -> Arrays:
    """The outputs of a session by name; of sequences and maps, as of scikit-learn, each value by a name of its own."""
    try:
        return run(session, arrays)
    except UnsupportedError:
        values = zip([end.name for end in session.get_outputs()], session.run(None, dict(arrays)), strict=True)
        return dict(leaf for name, value in values for leaf in _leaves(name, value))


def _leaves(name: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(value, (list, dict)):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(f"{name}.{key}", each)
    else:
        yield name, np.asarray(value)


def truth_of(original: SourceModel, arrays: Arrays, names: Sequence[str]) -> Arrays | None:
    """Outputs in float64 by the interpreter; None where it cannot run all of the model."""
    imported = original.imported
    if any(any(subgraphs(node)) for node in original.model.graph.node):
        return None  # bodies are run by onnxruntime
    try:
        stored = {name: imported.load_initializer(name) for name in imported.initializers}
        with np.errstate(all="ignore"):
            values = evaluate(imported.graph, {**arrays, **stored}, wide=True)
        return {name: np.asarray(values[name]) for name in names}
    except (NoyauError, KeyError, TypeError, ValueError, MemoryError):
        return None


def moved_weights(model: onnx.ModelProto) -> bytes:
    """A model whose stored floats are each a last bit farther from 0; external ones are as they were."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for tensor in result.graph.initializer:
        if tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE) and not tensor.external_data:
            cells = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.nextafter(cells, cells + cells), tensor.name))
    return result.SerializeToString()


def judge(path: Path, result: Path, sizes: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    """The errors and the speed of a result, with its library and without; nothing of a file that is as it was."""
    if path.read_bytes() == result.read_bytes():
        return {"right": True, "errors": {}, "speed": {}, "doubt": "the same file"}
    original, beside = open_model(path), library_path(result)
    library = beside if beside.exists() else None
    plain = open_session(path, threads=1)
    sessions = {"original": plain, "without": open_session(result, threads=1)}
    sessions |= {"with": open_session(result, library.absolute(), threads=1)} if library else {}
    unoptimized = open_session(path, threads=1, optimized=False)
    names = [each.name for each in plain.get_outputs()]
    errors, times, doubt = dict.fromkeys(sessions, 0.0), {}, ""
    allowed = True
    for number, each in enumerate(sizes or [{}]):
        known = {
            **sizes_for(original.imported, {}),
            **dict(zip(graph_names(original.imported, each), each.values(), strict=True)),
        }
        for seed in range(SEEDS):
            made = inputs_at(original.imported, known, (), 100 * number + seed).arrays
            arrays = {value.name: made[value.name] for value in plain.get_inputs()}
            base = {key: outputs_of(one, arrays) for key, one in sessions.items()}
            reference = outputs_of(unoptimized, arrays)
            near = {key: np.nextafter(a, a + a) if a.dtype.kind == "f" else a for key, a in arrays.items()}
            truth, bit = truth_of(original, arrays, names), distance(reference, outputs_of(unoptimized, near))
            if truth is None:  # what is quantised may go another step at a last bit, and whole numbers have none
                moved = open_session(moved_weights(original.model), threads=1, optimized=False, folder=path.parent)
                bit = max(bit, distance(reference, outputs_of(moved, arrays)))
            truths, doubt = ([reference], "without float64") if truth is None else ([truth], doubt)
            if truth is not None and distance(truth, reference) > max(1e-3, 100 * bit):
                truths, doubt = [truth, reference], "far from float64"  # near either is right, as a last bit of inputs
            least = 1.0 if truth is None else 0.0  # onnxruntime's own sigmoid is 1e-7 off, which for its 1e-5 is much
            apart = {key: min(distance(one, outputs, least) for one in truths) for key, outputs in base.items()}
            most = MOST_ERRORS * max(apart["original"], distance(truths[-1], reference), bit, floor_of(original))
            own = {key: distance(truths[0], outputs, least) for key, outputs in base.items()}
            is_doubted = len(truths) > 1  # then what is as near to float64 as the original is right too, or nearly so
            allowed &= all(
                one <= most or (is_doubted and own[key] <= 2 * own["original"]) for key, one in apart.items()
            )
            errors = {key: max(errors[key], one) for key, one in apart.items()}
        if number < 2:
            opened = partial(open_session, threads=1)
            made = {
                "original": partial(opened, path),
                "again": partial(opened, path),
                "without": partial(opened, result),
            }
            made |= {"with": partial(opened, result, library.absolute())} if library else {}
            ratios = speed(made, arrays)
            if min(ratios.get("with", 1.0), ratios["without"]) < LEAST_RATIO:
                ratios = speed(made, arrays, 3 * OPENINGS)
            times[" ".join(f"{k}={v}" for k, v in each.items()) or "as it is"] = ratios
    return {"right": allowed, "errors": errors, "speed": times, "doubt": doubt}


def speed(made: Mapping[str, Callable[[], Any]], arrays: Arrays, openings: int = OPENINGS) -> dict[str, float]:
    """The medians of the quotients of times, the original over each other one, in an order that changes; the median of
    some openings of all, as one session may lie better in memory than another: "again" is the original once more."""
    ratios: dict[str, list[float]] = {key: [] for key in made if key != "original"}
    for number in range(openings):
        chance = np.random.default_rng(number)
        sessions = {key: made[key]() for key in chance.permutation(list(made))}
        calls = {key: partial(session.run, None, dict(arrays)) for key, session in sessions.items()}
        for call in calls.values():
            call()
        once = max(seconds(calls["original"], 3), 1e-7)
        count = max(1, round(1e-3 / once))
        rounds = max(3, min(100, round(BUDGET_S / (once * count * len(calls)))))
        rows = [{key: seconds(calls[key], count) for key in chance.permutation(list(made))} for _ in range(rounds)]
        for key, own in ratios.items():
            own.append(statistics.median(row["original"] / row[key] for row in rows))
    return {"ms": round(1e3 * once, 3)} | {key: round(statistics.median(own), 3) for key, own in ratios.items()}


def seconds(call: Callable[[], Any], count: int) -> float:
    start = time.thread_time()
    for _ in range(count):
        call()
    return (time.thread_time() - start) / count


if __name__ == "__main__":
    print(json.dumps(judge(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))))
