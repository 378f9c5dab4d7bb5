from __future__ import annotations

import multiprocessing
import os
import threading
import warnings

import numpy as np
import pytest

import noyau
from noyau.dtypes import DType
from noyau.errors import InputError, SignatureError
from noyau.ir.graph_interpreter import evaluate
from noyau.kernels.reference import graph_of, without_warnings


def made(function, text="f32[n] -> f32[n]", ranks=(1,), dtypes=None):
    op = noyau.op(text)(function)
    return op.description.reference, op.instance(dtypes or [DType.F32] * len(ranks), ranks)


def run(function, *arrays, text="f32[n] -> f32[n]", **constants):
    reference, instance = made(function, text, tuple(np.ndim(array) for array in arrays))
    return reference.run(instance, arrays, constants)


X = np.arange(5, dtype=np.float32)


def test_a_reference_returns_or_fills_its_results():
    def filled(x, low, out):
        for i in range(len(x)):
            low[i], out[i] = x[i] - 1, x[i] + 1

    returned = run(lambda x: (x - 1, x + 1), X, text="f32[n] -> low: f32[n], f32[n]")
    assert all(
        np.array_equal(*pair)
        for pair in zip(returned, run(filled, X, text="f32[n] -> low: f32[n], f32[n]"), strict=True)
    )


def test_inputs_are_copies():
    def spoiling(x):
        x[...] = 0
        return x

    given = X.copy()
    assert run(spoiling, given)[0].tolist() == [0] * 5
    assert np.array_equal(given, X)


@pytest.mark.parametrize(
    ("function", "text", "told"),
    [
        (lambda x: x[:2], "f32[n] -> f32[n]", r"returns f32\[2\] as out, declared as f32\[n\], here f32\[5\]"),
        (lambda x: None, "f32[n] -> f32[n]", "returns None as out, declared as"),
        (lambda x: "text", "f32[n] -> f32[n]", r"returns a str \(<U4\) as out"),
        (lambda x: x > 1, "f32[n] -> f32[n]", r"returns bool\[5\] as out"),
        (lambda x: x, "f32[n] -> low: f32[n], high: f32[n]", "returns one result, and 2 are declared"),
        (lambda x: (x, x, x), "f32[n] -> low: f32[n], high: f32[n]", "returns 3 results, and 2 are declared"),
        (lambda x, out: None, "f32[n] -> f32[n]", "returns None and fills nothing of out"),
        (lambda x, out: x, "f32[n] -> f32[n]", "fills nothing of out"),
    ],
)
def test_what_a_reference_may_not_give(function, text, told):
    with pytest.raises(SignatureError, match=told):
        run(function, X, text=text)


def test_keyword_only_parameters_are_constants():
    def shifted(x, *, by=1.0):
        return x + np.float32(by)

    reference, instance = made(shifted)
    assert dict(reference.constants) == {"by": 1.0}
    assert np.array_equal(reference.run(instance, [X], {"by": 2.0})[0], X + 2)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x, *, eps: x, "the keyword-only parameter eps is a constant and needs a default"),
        (lambda *x: x, r"\*x takes what no signature can name"),
        (lambda x, **more: x, r"\*\*more takes what no signature can name"),
        (np.exp, "the reference of an op is a function, def or lambda"),
    ],
)
def test_what_is_no_reference(function, told):
    with pytest.raises(SignatureError, match=told):
        made(function)


def test_as_a_graph_it_is_evaluated_at_the_width_of_its_inputs():
    def third(x):
        return x / 3

    reference, instance = made(third)
    graph = graph_of(reference, instance, {})
    assert evaluate(graph, {"x": X})["out"].dtype == np.float32
    wide = evaluate(graph, {"x": X}, wide=True)["out"]
    assert wide.dtype == np.float64
    assert np.array_equal(wide, X.astype(np.float64) / 3)


def test_filled_outputs_are_wide_where_the_inputs_are():
    def third(x, out):
        out[...] = x / 3

    graph = graph_of(*made(third), {})
    assert np.array_equal(evaluate(graph, {"x": X}, wide=True)["out"], X.astype(np.float64) / 3)


def test_a_graph_of_several_results():
    reference, instance = made(lambda x: (x.sum(), x > 1), "f32[n] -> total: f32, f: bool[n]")
    found = evaluate(graph_of(reference, instance, {}), {"x": X})
    assert found["total"] == 10
    assert found["f"].tolist() == [False, False, True, True, True]


def test_inputs_on_which_the_reference_fails_are_refused():
    graph = graph_of(*made(lambda x: x / x.max()), {})
    with pytest.raises(InputError, match="the reference <lambda> fails with ValueError: zero-size array"):
        evaluate(graph, {"x": X[:0]})


def test_ops_that_a_reference_calls_run_as_they_are_written():
    """Else a kernel that is trusted, or one that noyau makes, would say what is right."""

    @noyau.op("float[n] -> float[n]")
    def inner(x):
        return x * 2

    inner.kernel(lambda x: x * 3, name="wrong", trust=True, returns=True)

    @noyau.op("f32[n] -> f32[n]")
    def outer(x):
        return inner(x) + 1

    outer.kernel(lambda x: x * 2 + 1, name="right", returns=True)
    graph = graph_of(outer.description.reference, outer.instance([DType.F32], [1]), {})
    assert np.array_equal(inner(X), X * 3)
    assert all(np.array_equal(evaluate(graph, {"x": X}, wide=wide)["out"], X * 2 + 1) for wide in (False, True))
    assert noyau.check(outer, budget_s=0.2, generated=False).ok


def test_reference_holds_for_its_thread_and_its_block():
    found = []
    with noyau.reference():
        with noyau.reference():
            pass
        thread = threading.Thread(target=lambda: found.append(noyau.kernels.reference.runs_as_written()))
        thread.start()
        thread.join()
        assert noyau.kernels.reference.runs_as_written()
    assert not noyau.kernels.reference.runs_as_written()
    assert found == [False]


def test_sizes_that_leave_no_shape_for_a_result_are_left_out_of_a_check():
    @noyau.op("f32[n] -> f32[n-2]")
    def bends(x):
        return x[2:] - 2 * x[1:-1] + x[:-2]

    @bends.kernel(returns=True)
    def again(x):
        return np.diff(x, 2)

    assert noyau.check(bends, budget_s=0.2, generated=False).ok
    instance = bends.instance([DType.F32], [1])
    with pytest.raises(InputError, match="no such shape where n=1; give larger inputs"):
        evaluate(graph_of(bends.description.reference, instance, {}), {"x": np.ones(1, np.float32)})


@pytest.mark.filterwarnings("error")
def test_a_kernel_is_judged_on_no_numbers_and_nobody_is_warned():
    """The certificate of a first call tries size 0, of which NumPy has no mean."""

    @noyau.op("f32[n, m] -> f32[n, m]")
    def centred(x):
        return x - x.mean(0)

    centred.kernel(lambda x, out: np.subtract(x, x.mean(0) if len(x) else 0, out), name="by_numpy")
    assert centred.explain(np.ones((4, 5), np.float32)).kernel != "reference"
    assert noyau.check(centred, budget_s=0.2, generated=False).ok
    assert not centred(np.ones((4, 5), np.float32)).any()


def is_warned():
    """Whether a mean of nothing warns, by the filters that there are."""
    try:
        np.zeros(0, np.float32).mean()
    except RuntimeWarning:
        return True
    return False


@pytest.fixture
def worker_inside():
    """A thread that is in `unwarned` for as long as it takes, and is not warned; the function ends it."""
    inside, leave, told = threading.Event(), threading.Event(), []

    def work():
        with without_warnings():
            inside.set()
            leave.wait(30)
            told.append(is_warned())

    def end():
        leave.set()
        thread.join(30)
        return told

    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(30)
    yield end
    end()


@pytest.mark.filterwarnings("error")
def test_other_threads_are_warned_and_keep_their_filters(worker_inside):
    """Filters that are set while another thread is in `unwarned`, and left after it, end as they began."""
    assert is_warned()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with without_warnings():
            assert not is_warned()
        assert is_warned()
        assert worker_inside() == [False]
    assert is_warned()


def test_filters_that_others_set_before_it_do_not_make_another_filter():
    with warnings.catch_warnings():
        for _ in range(3):
            with without_warnings():
                assert not is_warned()
            warnings.simplefilter("error")
            count = len(warnings.filters)
        with without_warnings():
            assert not is_warned()
        assert len(warnings.filters) == count


@pytest.mark.filterwarnings("error")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")
def test_a_fork_beside_an_unwarned_thread_is_warned_and_waits_for_nobody(worker_inside):
    def child(answers):
        before = is_warned()
        with without_warnings():
            within = is_warned()
        answers.put((before, within, is_warned()))

    forking = multiprocessing.get_context("fork")
    answers = forking.Queue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of any fork beside threads
        process = forking.Process(target=child, args=(answers,))
        process.start()
    try:
        assert answers.get(timeout=30) == (True, False, True)
    finally:
        process.kill()
        process.join(30)


@pytest.mark.filterwarnings("error")
def test_inputs_that_overflow_on_purpose_warn_nobody():
    @noyau.op("f32[n] -> f32[n]", inputs=lambda rng, n=3: (np.full(n, 100, np.float32),))
    def grown(x):
        return np.exp(x)

    @grown.kernel
    def quietly(x, out):
        with np.errstate(all="ignore"):
            np.exp(x, out)

    assert noyau.check(grown, budget_s=0.2, generated=False).ok
