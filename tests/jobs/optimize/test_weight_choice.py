"""The choice of weights in few bits, with planted gains, errors and faults."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import InputError
from noyau.jobs.optimize.onnx.weights import Variant
from noyau.jobs.optimize.weight_choice import Agreement, Option, agreement, budget_of, choose, undoing

EIGHT, FOUR = Variant(8, 32, 4), Variant(4, 32, 4)
LOGITS = np.array([[[1.0, 3.0, 2.5], [4.0, 0.0, 1.0], [0.0, 0.25, 0.125]]], np.float32)


@pytest.mark.parametrize("text", ["much", "0", "-1e-2", "nan", "inf", "", 0, -1.0])
def test_a_budget_that_is_none(text):
    with pytest.raises(
        InputError, match=r"is neither same-tokens nor a number above 0: --budget 1e-2 lets the outputs"
    ):
        budget_of(text)


def test_budgets():
    assert [budget_of(each) for each in (None, "same-tokens", "1e-2", 0.5)] == [None, None, 0.01, 0.5]


def test_tokens_that_flip_are_counted_and_the_least_margin_of_the_others_is_said():
    moved = LOGITS.copy()
    moved[0, 0, 2] = 3.5  # of a margin of 0.5
    found = agreement([({"logits": LOGITS}, {"logits": moved}), ({"logits": LOGITS}, {"logits": LOGITS})])
    assert (found.rows, found.flips, found.error, found.margin) == (6, 1, 0.25, 0.125 / 4)
    assert found.fault(None) == "1 of 6 tokens flip"
    assert found.fault(0.1) == "the outputs move by 0.25 of the largest"
    assert (found.fault(0.25), Agreement(rows=1).fault(None)) == ("", "")
    odd = "an output is no number where it was one, or none is a number"
    assert Agreement(np.inf, 1, 0).fault(None) == Agreement(np.inf).fault(0.1) == odd
    nothing, number = np.full((1, 2, 3), np.nan, np.float32), np.ones(2, np.float32)
    assert agreement([({"a": nothing}, {"a": nothing})]).fault(0.1) == odd
    assert not agreement([({"a": nothing, "b": number}, {"a": nothing, "b": number})]).fault(0.1)


def test_a_budget_is_held_on_512_rows_and_the_others_are_counted_apart():
    logits = np.tile(np.array([1.0, 0.0], np.float32), (1023, 1))
    moved = logits.copy()
    moved[1::2] = [0.0, 1.0]  # every second row is none of 512 evenly from 1023
    found = agreement([({"y": logits[:700]}, {"y": moved[:700]}), ({"y": logits[700:]}, {"y": moved[700:]})])
    assert (found.rows, found.flips, found.rows_beyond, found.flips_beyond) == (512, 0, 511, 511)
    assert not found.fault(None)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (np.array([3, 4, 5]), np.array([3, 9, 5]), Agreement(np.inf, 3, 1)),
        (np.array([3, 4]), np.array([3, 4, 5]), Agreement(np.inf, 2, 2)),
        (np.zeros((1, 2, 3, 4), np.float32), np.zeros((1, 2, 3, 4), np.float32), Agreement()),
        (np.ones((4, 1), np.float32), np.ones((4, 1), np.float32), Agreement()),
        (np.ones((1, 2), np.float32), np.array([[1, np.nan]], np.float32), Agreement(np.inf, 1, 1)),
    ],
    ids=["tokens", "another count of tokens", "a cache of four axes", "one cell", "no number"],
)
def test_which_outputs_are_tokens(before, after, found):
    assert agreement([({"y": before}, {"y": after})]) == found


def test_without_tokens_a_budget_of_them_says_what_would_do():
    assert Agreement().fault(None) == "no output is logits or tokens: give --budget 1e-2 in place of same-tokens"


def test_what_costs_most_error_for_what_it_gains_is_undone_first():
    choices = undoing(
        {
            "a": [Option(FOUR, 0.4, 0.2), Option(EIGHT, 0.3, 0.01), Option(Variant(7), 0.2, 0.02)],
            "b": [Option(EIGHT, 0.1, 0.05), Option(FOUR, -0.1, 0.001)],
            "c": [],
        }
    )
    assert choices == [{"a": FOUR, "b": EIGHT}, {"a": EIGHT, "b": EIGHT}, {"a": EIGHT}, {}]


def planted(sensitive: dict[str, float], budget: float, asked: list[object]):
    """Faults of choices whose errors add up, of four bits ten times over."""

    def fault(choice):
        asked.append(choice)
        total = sum(sensitive[name] * (10 if variant.bits == 4 else 1) for name, variant in choice.items())
        return f"moves by {total:g}" if total > budget else ""

    return fault


def test_the_first_choice_that_holds_is_found_by_halves_and_what_fits_beside_it_is_put_back():
    options = {f"p{k}": [Option(EIGHT, 1.0, 0.01 * (k + 1))] for k in range(32)}
    errors = dict.fromkeys(options, 1.0) | {"p30": 9.0}  # the one that is thought to be among the worst, and is
    asked: list[object] = []
    choice, faults = choose(undoing(options), planted(errors, 20.0, asked))
    assert len(choice) == 20 and "p30" not in choice
    assert faults == dict.fromkeys(options.keys() - choice.keys(), "moves by 21")
    assert len(asked) <= 1 + 5 + 8
    assert choose(undoing(options), planted(errors, 99.0, [])) == (dict.fromkeys(options, EIGHT), {})
    assert choose(undoing(options), planted(errors, 0.5, [])) == ({}, dict.fromkeys(options, "moves by 1"))
    assert choose(undoing({}), planted(errors, 0.0, asked)) == ({}, {})


def test_a_choice_keeps_the_order_of_the_gains():
    options = {"first": [Option(EIGHT, 0.5, 0.5)], "second": [Option(EIGHT, 0.4, 0.1)]}
    found = choose(undoing(options), lambda choice: "" if set(choice) != {"first", "second"} else "too much")
    assert found == ({"second": EIGHT}, {"first": "too much"})
    errors = {"first": 2.0, "second": 3.0}
    assert choose(undoing(options), planted(errors, 1.0, [])) == ({}, {n: f"moves by {e:g}" for n, e in errors.items()})
