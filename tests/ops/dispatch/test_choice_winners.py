from __future__ import annotations

import pytest

from noyau.kernels.programs.generate import specialization_of
from noyau.ops.dispatch import choice
from noyau.ops.dispatch.choice import Winner, bounds, recall_winners, record, text_digest, usual_text
from noyau.signatures.instances import bind
from noyau.toolchain import cache
from tests.ops.dispatch.ops import numbers, scale_op, softmax_op

SCALE = "void scale(const float *x, float by, float *out, long n) { for (long i = 0; i < n; ++i) out[i] = x[i] * by; }"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def wanted(op, array):
    return specialization_of(op.signature, bind(op.signature, [array], {}, op.name), {})


def winner(cells: int, kernel: str = "c") -> Winner:
    return Winner(cells, kernel, text_digest("text"), 1e-6, "2026-01-01")


def test_winners_are_kept_by_size():
    op, key = softmax_op(), wanted(softmax_op(), numbers(3, 4))
    assert recall_winners(op.description, key) == ()
    record(op.description, key, [winner(1000), winner(10, "by_rows")])
    record(op.description, key, [winner(1000, "numba")])
    assert recall_winners(op.description, key) == (winner(10, "by_rows"), winner(1000, "numba"))


def test_winners_are_of_one_key_and_one_reference():
    op = softmax_op()
    record(op.description, wanted(op, numbers(3, 4)), [winner(10)])
    assert recall_winners(op.description, wanted(op, numbers(4, 3).T)) == ()
    assert recall_winners(scale_op().description, wanted(op, numbers(3, 4))) == ()


def test_a_record_of_another_shape_is_none(monkeypatch):
    monkeypatch.setattr(choice.cache, "recall", lambda key: [{"cells": 3, "other": 1}])
    op = softmax_op()
    assert recall_winners(op.description, wanted(op, numbers(3, 4))) == ()
    assert cache is choice.cache


def test_what_the_reference_was_faster_than_is_what_runs_by_default():
    """A trusted kernel where it may run, else the generated one."""
    op = scale_op()
    key = specialization_of(op.signature, bind(op.signature, [numbers(3), 2.0], {}, op.name), op.calls.all({}))
    made = text_digest(op.generate("c").text)
    op.kernel(SCALE, language="c", name="checked")
    assert usual_text(op.description, key) == made
    op.kernel(SCALE.replace("out[i]", "nowhere[i]"), language="c", name="broken", trust=True)
    assert usual_text(op.description, key) == made
    op.kernel(SCALE, language="c", name="trusted", trust=True)
    assert usual_text(op.description, key) == text_digest(SCALE)


def test_the_nearest_size_counts_by_ratio():
    found = [winner(10), winner(1000, "numba"), winner(10**6, "by_rows")]
    limits = [limit for _, limit in bounds(found)]
    assert 90 < limits[0] < 110
    assert limits[2] == float("inf")
    assert bounds([]) == []
