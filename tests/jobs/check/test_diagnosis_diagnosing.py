from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import FindingKind
from noyau.jobs.check.diagnosis import Smallest, Unlike, diagnose, is_slight, spread
from noyau.verify.failures import Failure
from tests.kernels.written import op_of

F32 = op_of("f32[n] -> f32[n]").instance([DType.F32], [1])
F16 = op_of("f16[n] -> f16[n]").instance([DType.F16], [1])
SPREAD = spread([np.zeros(1)], [np.ones(1)])


def at_cell(got: float = 9.0, want: float = 1.0, allowed: float = 1e-6) -> Failure:
    return Failure.of_cell("case", "x: f32[9]", "all is wrong", "out", (0,), got, want, allowed)


def never(sizes):
    return None


def diagnosis(failure, *, layout="contiguous", unlike=None, at=never, instance=F32, n=9):
    return diagnose(Smallest(failure, {"n": n}), instance, layout, unlike, at)


def test_a_failure_alone_has_its_kind():
    assert diagnosis(Failure(FindingKind.UNWRITTEN, "case", "", "never wrote 3 cells")).kind == "unwritten"
    assert diagnosis(Failure(FindingKind.CRASH, "case", "", "crashed (SIGSEGV)")).kind == "crash"
    assert diagnosis(at_cell()).kind == "wrong-value"


@pytest.mark.parametrize("kind", [FindingKind.OUT_OF_BOUNDS, FindingKind.UNINITIALISED])
def test_what_runs_depend_on_is_the_kind(kind):
    made = diagnosis(at_cell(), unlike=Unlike(kind, "they depend", SPREAD, []))
    assert made.kind == kind
    assert "they depend, in 1 of 1 cells" in made.message(at_cell())


def test_runs_that_differ_are_a_race_unless_all_are_near():
    unlike = Unlike(FindingKind.ORDER_DEPENDENT, "they differ", SPREAD, [])
    assert diagnosis(at_cell(), unlike=unlike).kind == "race"
    assert diagnosis(at_cell(1.00001), unlike=unlike).kind == "precision"


def test_what_is_right_on_packed_arrays_is_stride_blind():
    made = diagnosis(at_cell(), layout="sliced")
    assert made.kind == "wrong-value"
    assert "stride-blind: it is right on packed arrays, and not on sliced ones" in made.message(at_cell())


def test_what_differs_by_chance_is_not_stride_blind():
    unlike = Unlike(FindingKind.ORDER_DEPENDENT, "they differ", SPREAD, [])
    assert diagnosis(at_cell(), layout="sliced", unlike=unlike).kind == "race"


def test_a_tail():
    made = diagnosis(at_cell(), n=1, at=lambda sizes: at_cell() if sizes["n"] % 8 else None)
    assert made.notes == ("wrong tail: only where n is no multiple of 8",)


def test_an_error_that_grows():
    made = diagnosis(at_cell(1.00001), n=1000)
    assert (made.kind, made.notes) == (
        "precision",
        ("the error grows with n: at 250 it is within what is allowed",),
    )
    assert diagnosis(at_cell(1.00001), n=1000, at=lambda sizes: at_cell(1.00001)).notes == ()


@pytest.mark.parametrize(
    ("instance", "got", "told"),
    [
        (F32, 2.0**24, "it stays at 2^24, where float32 has no number for one more"),
        (F32, -(2.0**24), "it stays at 2^24, where float32 has no number for one more"),
        (F16, 2048.0, "it stays at 2^11, where float16 has no number for one more"),
    ],
)
def test_a_sum_that_stays(instance, got, told):
    made = diagnosis(at_cell(got, 1.5 * got), instance=instance)
    assert (made.kind, made.notes) == ("precision", (told,))


def test_half_of_the_digits():
    assert is_slight(at_cell(1.0001), F32)
    assert not is_slight(at_cell(1.001), F32)
    assert not is_slight(at_cell(float("nan")), F32)
    assert not is_slight(Failure(FindingKind.CRASH, "case", "", "crashed"), F32)
