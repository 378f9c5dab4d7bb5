"""Is what a timed call returned right? Against a graph, by the certificate, or against a NumPy function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from noyau.dtypes import from_numpy
from noyau.errors import InputError
from noyau.ir.dims import shape_of
from noyau.ir.graph import Graph, Input, Node
from noyau.verify.failures import Case, Failure
from noyau.verify.floats import move_ulps
from noyau.verify.judges import Judge, judge_of
from noyau.verify.trial import LazyGraph, certify

Arrays = Sequence[np.ndarray]
Check = Callable[[Arrays, Arrays], str]
Reference = Callable[..., object]

_MOVED_RUNS = 8


def by_graph(graph: Graph, spelling: LazyGraph | None = None) -> Check:
    """A check of outputs for inputs, in the graph's order: by the certificate, against float64."""

    def check(inputs: Arrays, outputs: Arrays) -> str:
        case = Case("a timed run", tuple(map(np.array, inputs)))
        certificate = certify(graph, lambda _: outputs, [case], name="the timed run", traced=spelling)
        return "" if certificate.ok else certificate.summary()

    return check


def by_reference(reference: Reference, truth_of: Reference | None = None) -> Check:
    """As `by_graph`, against a NumPy function of the same inputs: evaluated with every float widened to float64 for the
    truth, and nine times as it is, eight of them with the float inputs moved by an ulp, for what is allowed.

    `truth_of` gives the truth in its place, of the same widened inputs."""

    def check(inputs: Arrays, outputs: Arrays) -> str:
        with np.errstate(all="ignore"):
            wide = [array.astype(np.float64) if is_float(array.dtype) else array.copy() for array in inputs]
            truth = arrays_of((truth_of or reference)(*wide))
            runs = [arrays_of(reference(*moved)) for moved in _nudge(inputs)]
            forms, right = ([f"{each.dtype}{list(each.shape)}" for each in arrays] for arrays in (outputs, runs[0]))
            misfit = "" if forms == right else f"gave {', '.join(forms)}, not {', '.join(right)}"
            return misfit or _first_failure(outputs, truth, runs)

    return check


def arrays_of(result: object) -> list[np.ndarray]:
    """The results of a NumPy function as arrays; InputError where one is none."""
    parts = result if isinstance(result, tuple | list) else [result]
    if any(part is None or from_numpy(np.asarray(part).dtype) is None for part in parts):
        raise InputError(f"the reference returned {type(result).__name__}, not an array or a tuple of arrays")
    return [np.asarray(part) for part in parts]


def _first_failure(outputs: Arrays, truth: Arrays, runs: Sequence[Arrays]) -> str:
    """The first wrong cell, in words, or nothing."""
    for number, got in enumerate(outputs):
        judge = _judge(number, got, truth[number])
        for run in runs:
            judge.see(run[number])
        outcome = judge.outcome(Case("a timed run", ()), "the inputs of the run")
        if outcome.broken or outcome.beyond > outcome.cells // 100_000:
            return _message(outcome.failures[0])
    return ""


def _message(failure: Failure) -> str:
    where = f"{failure.output}[{', '.join(map(str, failure.cell or ()))}]"
    got, want = (f"{value:.9g}" for value in (failure.got, failure.want))
    if got == want:
        got, want = repr(failure.got), repr(failure.want)
    bound = f"got {got}, want {want} (float64), allowed {failure.allowed:.2g}"
    return f"wrong at {where}: {bound}; {failure.note}"


def _judge(number: int, got: np.ndarray, truth: np.ndarray) -> Judge:
    dtype = from_numpy(got.dtype)
    if dtype is None:
        raise InputError(f"output {number} is {got.dtype}, which noyau cannot judge; cast it")
    node = Node(f"output {number}", Input(), (), dtype, shape_of(got.shape))
    return judge_of(node, got, truth, np.zeros(got.shape, bool), False, None)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether it is a dtype of floats that noyau has."""
    return (known := from_numpy(dtype)) is not None and known.is_float


def _nudge(inputs: Arrays) -> Iterator[Arrays]:
    """The inputs as they are, then with each float moved by -1, 0 or +1 ulp."""
    yield [array.copy() for array in inputs]
    rng = np.random.default_rng(_MOVED_RUNS)
    for _ in range(_MOVED_RUNS):
        packed = [np.ascontiguousarray(array).reshape(array.shape) for array in inputs]
        yield [move_ulps(array, rng) if is_float(array.dtype) else array.copy() for array in packed]
