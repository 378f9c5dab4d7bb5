from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.ir.operators import OPERATORS, Fact, has
from noyau.verify.rounding import jumping, step_values
from tests.jobs.check import groups
from tests.jobs.check.groups import F32, Group


def test_smooth_groups_have_no_steps():
    for make in (groups.softmax, groups.layer_norm, groups.rms_norm, groups.swiglu):
        assert step_values(make()) == frozenset()


def test_functions_that_step_jump():
    ramp = np.linspace(-3.05, 3.05, 200)
    for name in (name for name in OPERATORS if has(name, Fact.STEPS)):
        operands = (ramp, np.ones_like(ramp)) if OPERATORS[name].arity == 2 else (ramp,)
        assert len(set(OPERATORS[name].evaluate(*operands))) < 10, name


def test_what_is_rounded_steps_and_what_follows_too():
    g = Group()
    x = g.input("x", F32, "n")
    rounded = g.map("round_even", x)
    scaled = g.map("multiply", rounded, g.full(0.1, rounded))
    mixed = g.map("add", scaled, x)
    assert {rounded, scaled} == set(step_values(g.graph(scaled, mixed)))


@pytest.mark.parametrize("function", ["less", "equal"])
def test_a_comparison_steps_and_a_choice_between_numbers_does_not(function):
    g = Group()
    x, y = g.input("x", F32, "n"), g.input("y", F32, "n")
    chosen = g.map(function, x, y, dtype=DType.BOOL)
    smooth = g.map("where", chosen, x, y)
    steps = g.map("where", chosen, g.full(1, x), g.full(2, x))
    assert step_values(g.graph(smooth, steps)) == {chosen, steps}


def test_casts_to_integers_and_argmax_step():
    g = Group()
    x = g.input("x", F32, "rows", "n")
    whole = g.map("cast", x, dtype=DType.I32)
    back = g.map("cast", whole, dtype=F32)
    at = g.reduce("argmax", x, dtype=DType.I64)
    top = g.reduce("max", x)
    assert {whole, back, at} <= step_values(g.graph(back, at, top))
    assert top not in step_values(g.graph(back, at, top))


def test_integers_alone_never_step():
    g = Group()
    i = g.input("i", DType.I32, "n")
    halves = g.map("floor_divide", i, g.full(2, i))
    assert step_values(g.graph(halves, g.map("cast", halves, dtype=F32))) == frozenset()


def test_a_lookup_by_a_computed_index_steps_and_its_table_does_not():
    assert step_values(groups.embedding()) == frozenset()


def test_what_jumps_has_an_operand_that_moves():
    """Not what is made of steps: a cast of what is rounded has whole numbers, however inputs move."""
    g = Group()
    x, i = g.input("x", F32, "n"), g.input("i", DType.I32, "n")
    rounded = g.map("floor", g.map("multiply", x, x))
    whole = g.map("cast", rounded, dtype=DType.I32)
    below = g.map("less", x, rounded, dtype=DType.BOOL)
    chosen = g.map("where", below, x, rounded)
    halves = g.map("floor_divide", i, g.full(2, i))
    assert jumping(g.graph(whole, chosen, halves)) == {rounded, below}
