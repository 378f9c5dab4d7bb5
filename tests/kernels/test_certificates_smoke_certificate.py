from __future__ import annotations

import re
import time
from dataclasses import replace

import numpy as np
import pytest

import noyau
from noyau.compiler.lowering.input_layouts import INNER, STRIDED, Layout, Order, lie
from noyau.compiler.schedules.gpu import rows as gpu_rows
from noyau.kernels.certificates import maker_inputs, maker_inputs_at, maker_sizes, smoke
from noyau.kernels.programs.generate import build
from tests.ops.dispatch.ops import generated, linear_op, numbers, scale_op, softmax_op


@pytest.mark.parametrize("layout", [None, INNER, STRIDED, Layout(Order.PERMUTED, (1, 0))], ids=str)
def test_what_is_right_passes(layout, monkeypatch):
    monkeypatch.setattr("noyau.kernels.certificates.ENOUGH_S", 60.0)  # all cases, however slow the machine
    x = numbers(4, 5) if layout is None else lie(numbers(4, 5), layout)
    op = softmax_op()
    certificate = smoke(op.description, build(generated(op, x)))
    assert certificate.ok
    assert {"infinities mixed in, batch_0 = 5, n = 3", "normal numbers, batch_0 = 33, n = 33"} <= set(certificate.cases)


@pytest.mark.parametrize("layout", [INNER, STRIDED], ids=str)
def test_kernels_that_do_not_look_at_strides_are_refused(layout):
    """Inputs came packed to the kernel, whichever way it was made to read them."""
    op, x = softmax_op(), lie(numbers(4, 5), layout)
    made = generated(op, x)
    blind = re.sub(r"\b\w*_stride0\b(?! =)", "n", made.text)
    assert blind != made.text
    assert not smoke(op.description, build(replace(made, text=blind))).ok


def test_a_program_of_several_steps_passes():
    op = linear_op()
    assert smoke(op.description, build(generated(op, numbers(2, 3), numbers(3, 4), numbers(4)))).ok


def test_the_launches_of_a_call_are_run(monkeypatch):
    """One that leaves the last cell of long rows passes for a call that has none."""
    from noyau.toolchain.triton import module as builder

    if not builder.interprets():
        pytest.skip("Triton does not interpret")
    for place, name, least in ((gpu_rows, "KEPT", 8), (gpu_rows, "SHORT", 16), (gpu_rows, "SHARED_ROWS", 1)):
        monkeypatch.setattr(place, name, least)
    monkeypatch.setattr("noyau.kernels.certificates.EDGES", ())
    op, short, long = softmax_op(), {"batch_0": 4, "n": 5}, {"batch_0": 4, "n": 50}
    made = generated(op, numbers(4, 5), language="triton")
    head, streamed, tail = made.text.rpartition("noyau_store(")
    tail = re.sub(r"(\w+)_(inside|lines),", r"\1_\2 & (\1 != n - 1),", tail)
    wrong = head + streamed + tail
    assert wrong != made.text
    certificates = {
        (text, n): smoke(op.description, build(replace(made, text=text, wanted=replace(made.wanted, sizes=sizes))))
        for text in (made.text, wrong)
        for n, sizes in ((5, short), (50, long))
    }
    assert [each.ok for each in certificates.values()] == [True, True, True, False]
    assert "never wrote" in certificates[wrong, 50].summary()
    for sizes, other in ((short, long), (long, short)):
        one = replace(made, wanted=replace(made.wanted, sizes=sizes))
        assert one.is_certified_at(sizes)
        assert one.holds(other)
        assert not one.is_certified_at(other)


@noyau.op("f32[q, d], f32[n, d] -> f32[q]")
def nearest(x, y):
    return ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1).min(1)


@pytest.mark.parametrize("launch", range(3))
def test_on_a_cpu_all_launches_are_run_whatever_the_call(launch):
    """Few rows of the squared distances of many points, many rows, and points of many coordinates."""
    made = generated(nearest, numbers(4, 3), numbers(5, 3))
    before, after = made.text.split(f"static int32_t nearest_{launch}(")
    own, end, rest = after.partition("return NOYAU_OK;")
    wrong = before + f"static int32_t nearest_{launch}(" + re.sub(r"(x_\w) - y_i", r"\1 + y_i", own) + end + rest
    assert wrong != made.text
    certificate = smoke(nearest.description, build(replace(made, text=wrong)))
    assert "wrong" in certificate.summary() and not certificate.ok


@pytest.mark.parametrize("takes", [True, False])
def test_a_maker_is_asked_for_sizes_of_long_rows_and_need_not_take_them(takes, monkeypatch):
    from noyau.toolchain.triton import module as builder

    if not builder.interprets():
        pytest.skip("Triton does not interpret")
    monkeypatch.setattr(gpu_rows, "KEPT", 8)
    asked = []

    def inputs(rng, rows=2, n=5):
        asked.append((rows, n))
        if n > 5 and not takes:
            raise ValueError("n is 5")
        return (rng.random((rows, n), np.float32),)

    @noyau.op("f32[rows, n] -> f32[rows, n]", inputs=inputs)
    def shares(x):
        return x / x.sum(-1, keepdims=True)

    made = generated(shares, numbers(4, 5), language="triton")
    called = replace(made, wanted=replace(made.wanted, sizes={"rows": 400, "n": 50}))
    asked.clear()
    assert smoke(shares.description, build(called)).ok
    assert asked[:3] == [(2, 5), (2, 9), (2, 5)]


def test_a_maker_that_has_other_names_for_sizes_is_asked_for_them():
    def inputs(rng, width=4, height=3):
        return (rng.random((height, 2 * width), np.float32),)

    op = noyau.op("f32[rows, n] -> f32[rows, n]", inputs=inputs)(lambda x: x + 1)
    made = generated(op, numbers(4, 6))

    def shapes(**sizes):
        return [arrays[0].shape for _, arrays in maker_inputs_at(op.description, made.wanted, made.graph, sizes)]

    assert shapes(rows=5, n=8) == [(3, 8)]  # one of them alone, under no name that is known
    assert shapes(rows=5) == [(5, 8)]
    assert shapes(height=7) == [(7, 8)]


def test_what_is_wrong_does_not_pass():
    op = scale_op()
    made = generated(op, numbers(3), 2.0)
    wrong = replace(made, text=made.text.replace("x_i * by_i", "x_i * by_i * 1.0001f"))
    assert wrong.text != made.text
    certificate = smoke(op.description, build(wrong))
    assert not certificate.ok
    assert "wrong" in certificate.summary()


def test_constants_are_those_of_the_call():
    op = scale_op()
    assert smoke(op.description, build(generated(op, numbers(3), 2.0, shift=1.5))).ok


def test_inputs_of_the_ops_own_maker():
    asked = []

    def inputs(rng, n=7):
        asked.append(n)
        return rng.random((n, 4), np.float32), rng.integers(0, n, 3)

    @noyau.op("f32[n, 4], i64[k] -> f32[k, 4]", inputs=inputs)
    def rows(table, where):
        return table[where] * 2

    assert smoke(rows.description, build(generated(rows, *inputs(np.random.default_rng(0))))).ok
    assert len(asked) > 1


def test_indices_stay_inside_their_table():
    @noyau.op("f32[n, 4], i64[k] -> f32[k, 4]")
    def rows(table, where):
        return table[where] * 2

    made = generated(rows, numbers(5, 4), np.array([0, 4, -1]))
    assert smoke(rows.description, build(made)).ok


def test_it_takes_a_fraction_of_a_second():
    op = softmax_op()
    built = build(generated(op, numbers(2, 3)))
    began_s = time.monotonic()
    smoke(op.description, built)
    assert time.monotonic() - began_s < 5  # 0.1 s where nothing else runs


@pytest.mark.parametrize(
    ("maker", "by"),
    [
        (lambda rng, n=3, d=16: (rng.standard_normal((n, d), np.float32),), 2),
        (lambda rng: np.ones((2, 3), np.float32), 8),
    ],
)
def test_a_program_for_one_size_is_tried_at_that_size(maker, by):
    """The maker is asked for it by name; where it has no such size, other inputs are drawn."""

    @noyau.op("f32[n, d] -> f32[n, d]", inputs=maker)
    def scaled(x, *, by=by):
        return x / np.float32(float(x.shape[1] * by))

    assert np.array_equal(scaled(numbers(2, 4)), numbers(2, 4) / (4 * by))
    assert scaled.explain(numbers(2, 4)).kernel == "c"


def test_a_large_size_is_asked_for_beside_small_ones_or_not_at_all():
    def maker(rng, n=4096, d=64, k=2):
        raise AssertionError

    assert maker_sizes(maker, {"d": 32}) == {"d": 32}
    assert maker_sizes(maker, {"d": 1024}) == {"d": 1024, "n": 512}
    assert maker_sizes(maker, {}) == {}
    large = replace(generated(scale_op(), numbers(3), 2.0), specialised={"d": 20_000_000})
    assert list(maker_inputs(replace(scale_op().description, inputs=maker), large.wanted, large)) == []


def test_what_holds_for_no_usual_sizes_is_tried_on_those_of_the_call():
    op = noyau.op(lambda x: x + 1 if x.shape[0] == 4 else x)
    op(numbers(4, 3))
    assert op.explain(numbers(4, 3)).kernel == "c"


def test_a_maximum_of_nothing_may_be_anything():
    """NumPy refuses it."""
    op = noyau.op(lambda x: x[x > 0].max())
    assert op(np.array([1, -2, 3], np.float32)) == 3
    assert op.explain(numbers(3)).kernel == "c"
