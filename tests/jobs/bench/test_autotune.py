from __future__ import annotations

import json
import time

import numpy as np
import pytest

import noyau
from noyau.errors import InputError, SignatureError
from noyau.jobs.bench.autotune import search, variants
from noyau.kernels.programs.generate import specialization_of
from noyau.ops.dispatch.choice import recall_winners
from noyau.signatures.instances import bind
from noyau.timing.verdict import spell_s
from noyau.toolchain import cache

ADD = """
#ifndef STEP
#define STEP 1
#endif
void steps(const float *x, float *out, long n)
{
    for (long i = 0; i < n; i += STEP)
        for (long j = i; j < n && j < i + STEP; j++) out[j] = x[j] + 1;
}
"""
WAITS = """
void waits(const float *x, float *out, long n, long WAIT)
{
    for (volatile long i = 0; i < WAIT; i++) {}
    for (long j = 0; j < n; j++) out[j] = x[j] + 1;
}
"""


@pytest.fixture(autouse=True)
def _records_of_one_test(monkeypatch):
    """What is recorded in one test is not known in another."""
    kept: dict[str, object] = {}
    monkeypatch.setattr(cache, "keep", lambda key, told: kept.update({key: json.loads(json.dumps(told))}))
    monkeypatch.setattr(cache, "recall", kept.get)


def more() -> noyau.Op:
    @noyau.op("f32[n] -> f32[n]")
    def more(x):
        return x + np.float32(1)

    return more


def slow(x, out):
    time.sleep(1e-3)
    out[...] = x + 1


def winners(op, x):
    bound = bind(op.signature, (x,), {}, op.name)
    return recall_winners(op.description, specialization_of(op.signature, bound, {}))


def test_the_fastest_runs_from_now_on():
    op, x = more(), np.zeros(300, np.float32)
    op.kernel(slow, trust=True)
    op(x)
    assert "runs slow" in str(op.explain(x))
    found = noyau.tune(op, x, budget_s=0.1)
    assert found.ok
    assert found.winners[0].kernel in ("c", "reference") and found.winners[0].cells == 300
    assert "the fastest at 300 cells" in str(op.explain(x)) and "runs slow" not in str(op.explain(x))
    np.testing.assert_array_equal(op(x), x + 1)
    won = found.winners[0]
    assert f"from now on at 300 cells: {won.kernel}, {spell_s(won.median_s)} a call" in str(found)


def test_an_op_that_is_made_anew_runs_what_was_recorded():
    op, x = more(), np.zeros(310, np.float32)
    op.kernel(slow, trust=True)
    found = noyau.tune(op, x, budget_s=0.1)
    again = more()
    again.kernel(slow, trust=True)
    assert winners(again, x)[-1].kernel == found.winners[0].kernel
    assert "the fastest at" in str(again.explain(x))


def test_each_shape_class_has_a_winner():
    op = more()
    found = noyau.tune(op, sizes={"n": [10, 1000]}, budget_s=0.05)
    assert [each.cells for each in found.winners] == [10, 1000]
    assert [each.at[0].sizes["n"] for each in found.benched] == [10, 1000]
    assert [each.cells for each in winners(op, np.zeros(10, np.float32))] == [10, 1000]


def test_constants_that_are_lists_are_tried_and_the_fastest_is_recorded_and_runs():
    op, x = more(), np.zeros(200, np.float32)
    op.kernel(WAITS, language="c", name="waits", constants={"WAIT": [100_000, 0]}, trust=True)
    found = noyau.tune(op, x, budget_s=0.2)
    names = [row.name for row in found.benched[0].at[0].ranked]
    assert {"waits (WAIT=100000)", "waits (WAIT=0)"} <= set(names)
    assert names.index("waits (WAIT=0)") < names.index("waits (WAIT=100000)")
    assert found.winners[0].title != "waits (WAIT=100000)"
    np.testing.assert_array_equal(op(x), x + 1)


def test_the_constants_of_a_winner_are_recorded():
    op, x = more(), np.zeros(220, np.float32)
    op.kernel(WAITS, language="c", name="waits", constants={"WAIT": [200_000, 0]}, trust=True)
    (first, second) = variants(op.kernels["waits"])
    assert (first.usage.constants, second.usage.constants) == ({"WAIT": 200_000}, {"WAIT": 0})
    found = noyau.tune(op, x, budget_s=0.2)
    if found.winners[0].kernel == "waits":
        assert winners(op, x)[-1].constants == (("WAIT", 0),)
        assert "waits (WAIT=0)" in str(found)


def test_what_was_not_checked_is_not_timed():
    op, x = more(), np.zeros(230, np.float32)
    op.kernel(f"{ADD}/* {time.time_ns()} */", language="c", name="steps")  # checked by no earlier run
    found = noyau.tune(op, x, budget_s=0.05)
    assert "steps" not in [row.name for row in found.benched[0].at[0].rows]
    noyau.check(op, budget_s=1, generated=False)
    found = noyau.tune(op, x, budget_s=0.05)
    assert "steps" in [row.name for row in found.benched[0].at[0].rows]


def test_the_record_is_plain_data():
    found = noyau.tune(more(), sizes={"n": 40}, budget_s=0.05)
    told = json.loads(json.dumps(found.to_json()))
    assert told["winners"][0]["cells"] == 40 and told["benched"][0]["ok"]


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda: noyau.tune(noyau.op(lambda x: x)), SignatureError, "has no signature"),
        (lambda: noyau.tune(more(), np.zeros(3), budget_s=0.01), SignatureError, "does not fit"),
        (lambda: noyau.tune(more(), np.zeros(3, np.float32), sizes={"n": 3}), InputError, "both inputs and sizes"),
        (lambda: noyau.tune(more(), np.zeros(3, np.float32), 1), SignatureError, "more takes 1 input"),
    ],
)
def test_what_cannot_be_tuned_is_told(call, kind, told):
    with pytest.raises(kind, match=told):
        call()


def test_too_many_choices_of_constants_are_refused():
    op = more()
    op.kernel(WAITS, language="c", name="waits", constants={"WAIT": list(range(257))}, trust=True)
    with pytest.raises(InputError, match=r"more\[waits\] has 257 choices of constants, and 256 are the most"):
        noyau.tune(op, np.zeros(3, np.float32))


def test_a_kernel_that_has_not_been_checked_is_not_timed_and_tune_says_so():
    op = more()
    op.kernel(slow, name="slow")
    found = noyau.tune(op, np.zeros(9, np.float32), budget_s=0.02)
    assert list(found.left_out) == list(found.to_json()["left_out"]) == ["slow"]
    assert str(found).splitlines()[-1].startswith("slow was not timed: it has not been checked yet")


@pytest.mark.parametrize("value", [3, np.negative, lambda x: x])
def test_what_is_no_op_is_refused(value):
    kind = type(value).__name__
    with pytest.raises(SignatureError, match=rf"noyau\.tune takes an op, no {kind}; put @noyau\.op on a function$"):
        noyau.tune(value)


def test_a_search_tries_a_quarter_and_finds_the_bottom_of_a_bowl():
    tried = []

    def cost(choice):
        tried.append(choice)
        return 1 + 0.2 * (choice[0] - 5) ** 2 + 0.1 * (choice[1] - 1) ** 2 + 0.05 * choice[0] * choice[1]

    assert search((8, 6), cost, 12) in ((5, 0), (5, 1))
    assert len(tried) == len(set(tried)) == 12
    assert search((3,), lambda choice: -choice[0], 9) == (2,)


@pytest.mark.long
def test_of_many_choices_a_quarter_is_timed():
    op = more()
    waits = {"WAIT": [0, 0, 0, 4000, 1000], "ROUNDS": [1, 2, 3, 4]}
    op.kernel(WAITS, language="c", name="waits", constants=waits, trust=True)
    tuned = noyau.tune(op, np.zeros(3, np.float32), budget_s=0.05)
    rows = [row.name for row in tuned.benched[0].at[0].rows if row.name.startswith("waits")]
    assert len(rows) == 1
    assert "WAIT=0" in rows[0]
