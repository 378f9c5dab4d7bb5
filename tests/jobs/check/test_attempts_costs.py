from __future__ import annotations

import os

import numpy as np
import pytest
from numba import cuda

import noyau
from noyau.jobs.check.attempts import Budget, Costs, work_of
from noyau.signatures.instances import usual_instance
from noyau.workers.worker import Worker, spent_s


def test_a_run_is_expected_to_take_as_much_longer_as_it_has_to_do():
    costs = Costs()
    assert costs.expect_s(1000) == 0
    costs.note(10, 0.5)
    assert costs.expect_s(1000) == 0.5  # it may be a compiler's
    costs.note(100, 0.1)
    assert costs.expect_s(1000) == pytest.approx(0.1)
    costs.note(100, 0.2)
    assert costs.expect_s(1000) == pytest.approx(1.1)


def test_where_python_runs_each_thread_time_grows_with_them():
    costs = Costs(is_steep=True)
    costs.note(100, 0.1)
    assert costs.expect_s(1000) == pytest.approx(1.0)
    assert costs.expect_s(50) == pytest.approx(0.1)


def test_a_budget_affords_a_share_and_is_spent():
    budget = Budget(2.0, Costs(is_steep=True))
    budget.costs.note(100, 0.1)
    assert budget.affords(2000) and not budget.affords(2000, 0.25)
    assert not budget.is_spent
    assert Budget(-1.0).is_spent


@noyau.op("f32[rows, cols] -> f32[rows]")
def sums(x):
    return x.sum(1)


@sums.kernel(launch=lambda rows: (rows, 64))
@cuda.jit
def by_blocks(x, out):
    out[cuda.blockIdx.x] = np.float32(0)


def test_the_work_of_a_launch_is_its_threads_or_its_cells():
    instance = usual_instance(sums.signature, {}, {}, 1)
    kernel = sums.kernels["by_blocks"]
    assert work_of(kernel, instance, {"rows": 5, "cols": 3}) == 320
    assert work_of(kernel, instance, {"rows": 5, "cols": 300}) == 1500
    assert work_of(kernel, instance, {"rows": 0, "cols": 300}) == 300


def test_what_a_worker_spends_counts_while_it_runs():
    with Worker("sum") as worker:
        worker.ask(os.getpid)
        before_s, own_s = spent_s(), worker.spent_s
        worker.ask(sum, range(5_000_000))
        assert spent_s() - before_s >= worker.spent_s - own_s - 1e-6
        assert worker.spent_s > own_s
        worker.is_counted = False
        assert spent_s() < before_s + worker.spent_s
    assert worker.spent_s == 0
