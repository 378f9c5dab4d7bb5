"""Certificates against a reference that is one Opaque, with its traced graph for the roundings within."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import noyau
from noyau.dtypes import DType
from noyau.functions import erf
from noyau.ir.graph import Graph
from noyau.kernels.programs.generate import Specialization, lazy_graph
from noyau.kernels.reference import graph_of
from noyau.ops.op import Op
from noyau.verify.failures import Case
from noyau.verify.floats import shift_run
from noyau.verify.trial import certify

Array = np.ndarray
SQRT_HALF = np.float32(math.sqrt(0.5))


@noyau.op("f32[n] -> f32[n]")
def share(z):
    return np.float32(0.5) * (1 + erf(z * SQRT_HALF))


@noyau.op("f32[n] -> f32[n]")
def twice_that(z):
    return 1 + erf(z * SQRT_HALF)


@noyau.op("f32[n] -> f32[n]")
def counted(z):
    total = np.float32(0)
    for each in z.tolist():
        total = total + np.float32(each)
    return z + total


def judged(op: Op, kernel: Callable[[Array], Array], z: Array, spelt: Callable[[], Graph | None] | None):
    reference, instance = op.description.reference, op.usual([DType.F32], [1])
    graph = graph_of(reference, instance, {})
    return certify(graph, lambda arrays: [kernel(*arrays)], [Case("tail", (z,))], name="kernel", traced=spelt)


def spelt_of(op: Op) -> Callable[[], Graph | None]:
    return lazy_graph(op.description.reference, Specialization(op.usual([DType.F32], [1])))


def erf_an_ulp_above(z: Array) -> Array:
    """As `share`, with an erf that rounds up: as right as one that rounds down, or to the nearest."""
    exact = np.array([math.erf(float(each * SQRT_HALF)) for each in z])
    near = exact.astype(np.float32)
    return np.float32(0.5) * (1 + np.where(near < exact, np.nextafter(near, np.float32(1)), near))


TAIL = np.linspace(-5.2, -4.6, 4001, dtype=np.float32)


def test_a_rounding_within_the_reference_is_allowed_where_its_graph_shows_it() -> None:
    assert not judged(share, erf_an_ulp_above, TAIL, None).ok
    assert judged(share, erf_an_ulp_above, TAIL, spelt_of(share)).ok


def test_what_no_rounding_explains_is_still_wrong() -> None:
    certificate = judged(share, lambda z: erf_an_ulp_above(z) + np.float32(1e-6), TAIL, spelt_of(share))
    assert not certificate.ok
    assert "wrong at out[0]" in certificate.summary()


def test_a_graph_that_was_traced_wrongly_does_not_make_its_kernel_right() -> None:
    z = np.linspace(-1, 1, 101, dtype=np.float32)
    certificate = judged(share, lambda z: 2 * erf_an_ulp_above(z), z, spelt_of(twice_that))
    assert not certificate.ok


def test_what_cannot_be_traced_is_judged_as_before() -> None:
    assert spelt_of(counted)() is None
    z = np.linspace(-1, 1, 11, dtype=np.float32)
    assert judged(counted, lambda z: z + z.sum(dtype=np.float32), z, spelt_of(counted)).ok


def test_runs_stand_as_far_from_a_truth_as_from_their_own() -> None:
    run, own, truth = np.array([1.5, np.inf, np.nan, 2]), np.array([1, 1, 1, np.inf]), np.array([10, 10, 10, 3.0])
    assert np.array_equal(shift_run(run, own, truth), [10.5, np.inf, np.nan, 3], equal_nan=True)
    ints = shift_run(np.array([1, 5]), np.array([1, 4]), np.array([1, 7]))
    assert ints.tolist() == [1, 7]
