from __future__ import annotations

import re

import numpy as np
import pytest

from noyau.codegen.c.printer import source
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.errors import UnsupportedError
from noyau.ir.graph import Graph, Map, Reduce, Scan, constant
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.monoids import MONOIDS, STEPS, left_fold
from tests.compiler.schedules.groups import assert_keeps, lowered, reduced
from tests.nodes import F32, given, graph, value

HALF = constant("half", np.array(0.5, np.float32))


def horner(number="half"):
    """state * 0.5 + value."""
    given_ = (given("state", F32), given("value", F32), HALF)
    product = value("product", Map("multiply"), f"state {number}", F32)
    return Graph((*given_, product, value("out", Map("add"), "product value", F32)), ("out",))


@pytest.fixture
def fold():
    made = left_fold(horner(), 1.0)
    yield made
    del MONOIDS[made], STEPS[made]


def by_hand(rows, start=1.0):
    state = np.full(rows.shape[1:], start, rows.dtype)
    for row in rows:
        state = state * rows.dtype.type(0.5) + row
    return state


def test_equal_steps_are_one_monoid_and_others_are_others(fold):
    assert left_fold(horner(), 1.0) == fold
    others = [left_fold(horner(), 0.0), left_fold(horner(), -0.0), left_fold(horner("state"), 1.0)]
    assert len({fold, *others}) == 4
    assert MONOIDS[fold].ordered and not MONOIDS["sum"].ordered
    for each in others:
        del MONOIDS[each], STEPS[each]


def test_it_is_evaluated_from_the_first_to_the_last(fold):
    x = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    reduced_ = graph("out", given("x", F32, 7, 3), value("out", Reduce(fold, (0,)), "x", F32, 3))
    assert np.array_equal(evaluate(reduced_, {"x": x})["out"], by_hand(x))
    running = graph("out", given("x", F32, 7, 3), value("out", Scan(fold, 0), "x", F32, 7, 3))
    assert np.array_equal(evaluate(running, {"x": x})["out"][-1], by_hand(x))


@pytest.mark.parametrize("shape", [("rows", "n"), ("rows", 5), (300, 7)])
@pytest.mark.parametrize("axis", [0, 1])
def test_every_strategy_keeps_the_order(fold, shape, axis):
    described = reduced(fold, *shape, axes=(axis,), after="negative")
    every = [{"rows": m, "n": n} for m, n in ((1, 1), (2, 300), (40, 3), (0, 2), (3, 0))]
    used = {tuple((name, size) for name, size in sizes.items() if name in shape): None for sizes in every}
    assert_keeps(described, schedule(lowered(described)), *map(dict, used))


def test_all_of_a_matrix_is_one_chain(fold):
    described = reduced(fold, "rows", "n", axes=(0, 1))
    made = schedule(lowered(described))
    assert len(made.launches) == 1
    assert_keeps(described, made, {"rows": 30, "n": 20}, {"rows": 1, "n": 1})


def test_its_text_is_the_step(fold):
    text = source(schedule(lowered(reduced(fold, "rows", "n", axes=(1,)))))
    assert re.search(rf"(\w+_{fold}) = \(\1 \* 0.5f\) \+ \w+;", text)


def test_what_is_no_scalar_function_is_refused():
    step = graph("out", given("state", F32), given("value", F32), value("out", Reduce("sum", ()), "value", F32))
    with pytest.raises(UnsupportedError, match="out is a Reduce, and a fold takes scalar functions"):
        left_fold(step, 0.0)
