"""Whether a fused result is right: against the unfused computation and the float64 truth, cell by cell.

A bound of the tests' own, simpler than the product's certificate and independent of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np

from noyau.ir.graph import Graph
from noyau.ir.graph_interpreter import evaluate

Arrays = Mapping[str, np.ndarray]
RUNS = 3  # of the unfused computation with inputs moved by an ulp


class Judge:
    """The truth of one graph on one set of inputs, and how far the unfused computation is from it in each cell."""

    def __init__(self, graph: Graph, inputs: Arrays, seed: int = 0) -> None:
        noise = np.random.default_rng(seed)
        self.truth = evaluate(graph, inputs, wide=True)
        self.runs = [evaluate(graph, inputs)]
        if any(array.dtype.kind in "fV" for array in inputs.values()):
            self.runs += [evaluate(graph, moved(inputs, noise)) for _ in range(RUNS)]

    def wrong(self, output: str, got: np.ndarray) -> str | None:
        """What is wrong with a result, or None."""
        runs, truth = [run[output] for run in self.runs], self.truth[output]
        if got.dtype != runs[0].dtype or got.shape != runs[0].shape:
            return f"{output} is {got.dtype}{list(got.shape)}, not {runs[0].dtype}{list(runs[0].shape)}"
        bad = _beyond(got, truth, runs) if got.dtype.kind in "fV" else _unequal(got, truth, runs)
        if not bad.any():
            return None
        at = tuple(int(axis[0]) for axis in np.nonzero(bad)) if bad.ndim else ()
        return (
            f"{output} is wrong at {list(at)} of {list(got.shape)}, in {int(bad.sum())} cells: "
            f"got {got[at]}, unfused {runs[0][at]}, truth {truth[at]}"
        )


def moved(inputs: Arrays, noise: np.random.Generator) -> dict[str, np.ndarray]:
    """The inputs with each float moved by -1, 0 or 1 ulp."""
    made = {}
    for name, array in inputs.items():
        if array.dtype.kind not in "fV" or not array.size:
            made[name] = array
            continue
        step = noise.integers(-1, 2, array.shape)
        up = np.nextafter(array, np.full_like(array, np.inf))
        down = np.nextafter(array, np.full_like(array, -np.inf))
        made[name] = np.where(step > 0, up, np.where(step < 0, down, array))
    return made


def _unequal(got: np.ndarray, truth: np.ndarray, runs: list[np.ndarray]) -> np.ndarray:
    """Integers and bools equal the truth or one of the runs; where the runs differ, near a jump, anything goes."""
    agree = got == truth
    steady = np.ones(got.shape, bool)
    for run in runs:
        agree |= got == run
        steady &= run == truth
    return ~agree & steady


def _beyond(got: np.ndarray, truth: np.ndarray, runs: list[np.ndarray]) -> np.ndarray:
    """Floats: as near the truth as a few times the unfused computation; NaN and infinity as in one of them."""
    with np.errstate(all="ignore"):
        wide, others = got.astype(np.float64), [run.astype(np.float64) for run in runs]
        rounded = truth.astype(got.dtype).astype(np.float64)  # the truth may be infinite in the result's dtype
        same = np.zeros(got.shape, bool)
        for other in [rounded, *others]:
            same |= (wide == other) | (np.isnan(wide) & np.isnan(other))
        distance = np.nan_to_num(np.max([np.abs(other - rounded) for other in others], axis=0), nan=0.0, posinf=np.inf)
        finite = np.abs(rounded[np.isfinite(rounded)])
        scale = np.median(finite) if finite.size else 0.0
        ulp = float(ml_dtypes.finfo(got.dtype).eps)
        allowed = max(4 * ulp, 1e-5) * (np.abs(rounded) + scale) + 8 * distance + 1e-300
        unsteady = _some([rounded, *others], np.isnan) | _some([rounded, *others], np.isinf)
        return ~same & ~unsteady & ~(np.abs(wide - rounded) <= allowed)


def _some(runs: list[np.ndarray], test: np.ufunc) -> np.ndarray:
    """Where some runs pass a test and others do not."""
    passed = np.stack([test(run) for run in runs])
    return passed.any(0) & ~passed.all(0)
