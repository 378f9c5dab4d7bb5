"""Mutants of right kernels are found, each with a kind that it must have by construction."""

from __future__ import annotations

import numpy as np

from tests.sanitizer.numba.mutants import EQUIVALENT, mutants
from tests.sanitizer.numba.test_kernel_watching import told

FOUND, LEFT_OUT = 0.95, 0.1


def kinds_of(mutant):
    arrays = map(np.array, mutant.arrays)
    return {kind for kind, *_ in told(mutant.kernel, *arrays, outputs=mutant.outputs)}


def test_mutants_are_found_with_their_kind():
    made, left_out = mutants()
    found = {each.name: kinds_of(each) for each in made}
    missed = {each.name: found[each.name] for each in made if not found[each.name] & each.kinds}
    assert len(made) >= 100
    assert len(missed) <= (1 - FOUND) * len(made), missed
    assert left_out == EQUIVALENT.keys()
    assert len(left_out) <= LEFT_OUT * len(made)
