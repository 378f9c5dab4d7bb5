"""Threads that call one op at once, and attach to it meanwhile: in every build of Python, also without its lock."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import sysconfig
import threading
import warnings

import numpy as np
import pytest

import noyau
from noyau.hosts.numpy.fast_calls import LEAST_BYTES, pool
from noyau.ops.dispatch import choice
from tests.ops.dispatch.ops import numbers, scale_op, softmax_op

THREADS = 6
COPY = "void copy_{k}(const float *x, float by, float *out, long n) {{ for (long i = 0; i < n; ++i) out[i] = x[i]; }}"


@pytest.fixture(autouse=True)
def switched_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def at_once(*jobs):
    """Run functions in threads that start together; what one raises is raised here."""
    start, failed = threading.Barrier(len(jobs)), []

    def run(job):
        try:
            start.wait(30)
            job()
        except Exception as fault:  # noqa: BLE001  raised below
            failed.append(fault)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if failed:
        raise failed[0]


def test_first_calls_of_many_keys(monkeypatch):
    """Each key is decided once, whoever comes first, and every result is right."""
    op, rows = softmax_op(), numbers(THREADS, 7)
    decided, real = [], choice.Selector.decide
    monkeypatch.setattr(
        choice.Selector, "decide", lambda self, wanted, key: decided.append(key) or real(self, wanted, key)
    )
    made = [[None] * 3 for _ in range(THREADS)]

    def calls(k):
        for rank in (1, 2, 3):
            made[k][rank - 1] = op(rows[k].reshape((1,) * (rank - 1) + (7,)))

    at_once(*(lambda k=k: calls(k) for k in range(THREADS)))
    assert len(decided) == len(set(decided)) == 3
    assert len(op.calls.plain) == 3  # one fast call a key
    for k in range(THREADS):
        for got in made[k]:
            assert got.tobytes() == op(rows[k].reshape(got.shape)).tobytes()
            assert np.allclose(got.ravel(), op.reference(rows[k]), rtol=1e-5)


def test_first_calls_without_a_signature():
    @noyau.op
    def half(x):
        return x / np.float32(2)

    made = {}
    at_once(*(lambda k=k: made.update({k: half(np.full(5, k, np.float32))}) for k in range(THREADS)))
    assert [made[k].tolist() for k in range(THREADS)] == [[k / 2] * 5 for k in range(THREADS)]
    assert [len(found) for found in half.calls.kinds.values()] == [1]


def test_one_warning_for_all_threads():
    @noyau.op("f32[n] -> f32[n]")
    def told(x):
        return np.asarray([float(each) for each in x.tolist()], np.float32)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        at_once(*(lambda: told(np.ones(3, np.float32)) for _ in range(THREADS)))
    assert [each.category for each in seen] == [noyau.ReferenceWarning]


def test_large_results_dropped_by_other_threads():
    """Memory of results goes from thread to thread: nobody's result changes while it is held, and none is lost."""
    op, cells = scale_op(), LEAST_BYTES // 4
    handed, x = [], np.ones(cells, np.float32)
    op(x, 1.0)
    pool().clear()

    def make(k):
        for turn in range(6):
            got = op(x, float(8 * k + turn))
            handed.append((8 * k + turn, got))
            with contextlib.suppress(IndexError):
                wanted, other = handed.pop(0)
                assert other[0] == other[-1] == wanted
                assert not (other != wanted).any()

    at_once(*(lambda k=k: make(k) for k in range(THREADS)))
    handed.clear()
    assert 0 < pool().waiting_bytes <= (2 * THREADS + 1) * 2 * LEAST_BYTES  # of 36 results that were made


def test_kernels_attached_meanwhile():
    op, x, stop = scale_op(), numbers(50), threading.Event()

    def attach(k):
        for number in range(4):
            name = f"k{k}_{number}"
            op.kernel(COPY.format(k=name), language="c", entry=f"copy_{name}", name=name)

    def call():
        while not stop.is_set():
            assert np.allclose(op(x, 2.0), 2 * x)

    def all_attached():
        try:
            at_once(*(lambda k=k: attach(k) for k in range(3)))
        finally:
            stop.set()

    at_once(all_attached, call, call)
    assert sorted(op.kernels) == sorted(f"k{k}_{number}" for k in range(3) for number in range(4))


def _call(op, x, answers):
    answers.put(op(x, 3.0).tolist())


def test_a_fork_in_the_midst_of_a_first_call(monkeypatch):
    """The lock of a key that another thread of the parent holds is none of the child's."""
    op, x = scale_op(), np.ones(3, np.float32)
    inside, leave, real = threading.Event(), threading.Event(), choice.Selector.decide

    def decided(self, wanted, key):
        if threading.current_thread() is first:
            inside.set()
            leave.wait(30)
        return real(self, wanted, key)

    monkeypatch.setattr(choice.Selector, "decide", decided)
    first = threading.Thread(target=lambda: op(x, 3.0))
    first.start()
    assert inside.wait(30)
    forking = multiprocessing.get_context("fork")
    answers = forking.Queue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of any fork beside threads
        child = forking.Process(target=_call, args=(op, x, answers))
        child.start()
    try:
        assert answers.get(timeout=30) == [3, 3, 3]
    finally:
        leave.set()
        child.join(30)
        child.kill()
        first.join(30)


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="needs a Python built with --disable-gil")
def test_nothing_here_asks_for_the_lock_of_python():
    """Were one of the modules in C not made for it, Python would have taken its lock back."""
    scale_op()(np.ones(3, np.float32), 2.0)
    assert not sys._is_gil_enabled()
