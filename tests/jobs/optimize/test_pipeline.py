"""The pipeline on a host that it has never heard of: plain NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noyau.jobs.optimize.pipeline import losing, optimize
from noyau.timing.verdict import Verdict
from tests.jobs.optimize.numpy_host import NumpyHost

FEW, MANY = {"rows": 3, "columns": 5}, {"rows": 200, "columns": 300}


def block(x, w):
    gate = np.tanh(x) * x + 1
    mixed = gate @ w
    return np.exp(mixed - mixed.max(-1, keepdims=True)) * 0.5


def drawn(sizes):
    rng = np.random.default_rng(0)
    rows, columns = sizes["rows"], sizes["columns"]
    x, w = rng.standard_normal((rows, columns)), rng.standard_normal((columns, columns)) / columns
    return {"x": x.astype(np.float32), "w": w.astype(np.float32)}


def host(**given):
    axes = {"x": ("rows", "columns"), "w": ("columns", "columns")}
    return NumpyHost(block, axes, drawn, [FEW, MANY], **given)


def test_a_function_is_fused_certified_timed_and_installed():
    said = []
    here = host()
    outcome = optimize(here, "all", said.append)
    assert len(outcome.candidates) == 2
    for one in outcome.candidates:
        assert one.certificate.ok and one.kept and not one.reason
        assert [timing.sizes for timing in one.timings] == [FEW, MANY]
        assert one.timings[1].hot.pairs >= 6 and one.timings[1].traffic.bytes > 0
    assert said[0] == f"timing at rows=3, columns=5, 1 of 2: {outcome.candidates[0].planned.operator}"
    assert len(outcome.installed.kernels) == 2
    for sizes in (FEW, MANY):
        inputs = drawn(sizes)
        (got,) = outcome.installed(*inputs.values())
        assert np.allclose(got, block(**inputs), rtol=1e-5)


def test_a_kernel_that_wins_stays():
    outcome = optimize(host(budget_s=0.2), "faster", lambda _: None)
    for one in outcome.candidates:
        verdicts = {timing.verdict for timing in one.timings}
        wins = Verdict.FASTER in verdicts and Verdict.SLOWER not in verdicts
        assert one.kept == (wins and losing(one.timings) is None)  # in doubt at one binding it does not stay


def test_a_kernel_that_is_dropped_is_not_timed():
    here = host()
    dropped, _ = (each.operator for each in here.plan()[1].kernels)
    one, other = optimize(here, "all", lambda _: None, {dropped: "slower as a whole"}).candidates
    assert (one.kept, one.reason, one.timings) == (False, "slower as a whole", ())
    assert other.kept


def test_a_wrong_kernel_is_out_before_it_is_timed():
    def spoil(planned):
        return replace(planned, text=planned.text.replace("1.0f", "1.5f"))

    outcome = optimize(host(spoil=spoil), "all", lambda _: None)
    wrong = [one for one in outcome.candidates if one.reason]
    assert wrong and all("wrong at" in one.reason and not one.timings and not one.kept for one in wrong)
    inputs = drawn(FEW)
    (got,) = outcome.installed(*inputs.values())
    assert np.allclose(got, block(**inputs), rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "reason"), [("#error no", "does not build: "), ("int nothing;", "cannot be checked: ")]
)
def test_a_kernel_that_does_not_build_has_the_reason(text, reason):
    outcome = optimize(host(spoil=lambda planned: replace(planned, text=text)), "all", lambda _: None)
    assert all(one.reason.startswith(reason) and not one.kept for one in outcome.candidates)
    assert outcome.installed.kernels == []


def test_its_report_is_that_of_every_host():
    here = host()
    outcome = optimize(here, "all", lambda _: None)
    report = here.report(outcome)
    assert [kernel.name for kernel in report.kept] == [one.planned.operator for one in outcome.candidates]
    assert report.kernels[0].replaces[0] == "tanh" and report.kernels[0].bindings[1].sizes == MANY
    assert [left.nodes for left in report.not_fused] == [("contract#4",)]
    assert (report.model, report.nodes_after < report.nodes_before) == ("block", True)
    assert "2 of 2 kernels kept" in str(report)
