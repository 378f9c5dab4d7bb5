"""Mutants of correct kernels are found, and as what they are: some of them by default, all with `pytest -m long`."""

from __future__ import annotations

import pytest

from noyau.errors import CheckError
from tests.defects import kernels_of, watch_on
from tests.sanitizer.triton.mutants import MODULES, loaded, mutants
from tests.sanitizer.triton.test_kernel_watching_tutorials import ONLY, SIZES, arrays_for, is_without

# Mutants that do nothing wrong with memory, on any input, and why.
EQUIVALENT = {"tuned_in_place_early_load_1": "the load of blocks that are full, which none of these sizes has"}
MANY = {name: {"n": 150} for name in ("add", "dropout", "random", "histogram", "largest", "halves", "merged", "scaled")}
MANY["total"] = {"n": 500}
SHARE, EVERY = 0.95, 10  # that must be found as what they are; of which one is tried by default


def missed_of(module, folder, every):
    """Which mutants of a file are not found as what they are, of how many."""
    made = [each for each in mutants(module) if each.name not in EQUIVALENT]
    if is_without("make_block_ptr"):
        made = [each for each in made if not each.name.startswith("block_pointers")]
    chosen = {each.name: each for each in made[::every]}
    missed = {}
    for op, kernel in kernels_of(loaded(module, list(chosen.values()), folder)):
        if kernel.name in chosen:
            arrays = arrays_for(op, {**SIZES, **ONLY.get(op.name, {}), **MANY.get(op.name, {})})
            try:
                found = {each.kind for each in watch_on(op, kernel, *arrays).findings}
            except CheckError as error:
                found = {str(error)}
            if not found & chosen[kernel.name].kinds:
                missed[kernel.name] = found
    return missed, len(chosen)


@pytest.mark.parametrize("every", [EVERY, pytest.param(1, marks=pytest.mark.long)])
def test_mutants_are_found_as_what_they_are(tmp_path, every):
    missed, count = {}, 0
    for module in MODULES:
        more, tried = missed_of(module, tmp_path, every)
        missed, count = missed | more, count + tried
    assert count >= 120 // every
    assert len(missed) <= (1 - SHARE) * count, missed


def test_what_is_equivalent_is_so_for_a_reason_and_rare():
    names = {mutant.name for module in MODULES for mutant in mutants(module)}
    assert set(EQUIVALENT) <= names
    assert all(EQUIVALENT.values())
    assert len(EQUIVALENT) <= 0.1 * len(names)
