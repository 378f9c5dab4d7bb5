"""What a kernel's own function would call, for shapes: launches, their arguments and items, scratch."""

from __future__ import annotations

import numpy as np

from noyau.toolchain.numba.kernel import plan
from tests.codegen.numba_kernels import compiled


def plan_of(name, inputs, outputs):
    made = compiled(name)
    return plan(made._caller, made._names, inputs, outputs)


def test_a_launch_is_given_arrays_and_sizes_by_place():
    found = plan_of("log_softmax_streamed", [(5, 70)], [(5, 70)])
    ((launch, places, items),) = found.steps
    assert (launch, items, found.status, found.scratch) == (0, 5, 0, ())
    arrays = [np.zeros((5, 70)), np.ones((5, 70))]
    given = [found.values(arrays)[place] for place in places]
    assert given[0] is arrays[0]
    assert given[1] is arrays[1]
    assert sorted(given[2:]) in ([70], [5, 70])


def test_two_launches_with_scratch_between_them():
    found = plan_of("full_sum", [(100_000,)], [()])
    (first, places, _), (second, later, items) = found.steps
    assert (first, second, items) == (0, 1, None)  # one thread merges
    assert len(found.scratch) == 1
    place = 2  # after the input and the output
    assert place in places
    assert place in later


def test_shapes_that_do_not_fit_are_a_status():
    assert plan_of("log_softmax_streamed", [(5, 70)], [(5, 71)]).status == 2


def test_no_items_are_no_step():
    assert plan_of("log_softmax_streamed", [(0, 70)], [(0, 70)]).steps == ()
