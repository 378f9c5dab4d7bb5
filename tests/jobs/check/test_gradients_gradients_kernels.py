from __future__ import annotations

import time

import numpy as np

import noyau
from noyau.compiler.lowering.input_layouts import Layout, Order
from noyau.jobs.check import gradients
from noyau.jobs.check.gradients import check_gradient_kernels
from noyau.kernels.programs import generate
from noyau.kernels.programs.generate import BuiltProgram


def squares(x):
    return (x * x).sum(-1)


def op_of(signature="f32[n, m] -> f32[n]", gradient=None):
    op = noyau.op(signature)(squares)
    if gradient is not None:
        op.gradient(gradient)
    return op


def checked(op):
    return check_gradient_kernels(op, {}, 0, time.monotonic() + 60, "here:3")


def test_the_kernels_of_a_derived_gradient_are_right_on_packed_and_strided_arrays():
    found = checked(op_of())
    assert found.ok and found.certificate is not None
    assert len(found.certificate.outcomes) == 8
    assert "x: f32[5, 3], grad_out: f32[5]" in found.shapes
    assert "strided" in str([outcome.label for outcome in found.certificate.outcomes])


def test_a_wrong_kernel_is_found(monkeypatch):
    whole = BuiltProgram.call_guarded

    def doubled(self, *arrays, **how):
        return [2 * each for each in whole(self, *arrays, **how)]

    monkeypatch.setattr(BuiltProgram, "call_guarded", doubled)
    (finding,) = checked(op_of()).errors
    assert (finding.kind, finding.kernel, finding.place) == ("gradient", "gradient in c", "here:3")
    assert finding.cell is not None and "wrong at grad_x[" in finding.message


def test_kernels_that_do_not_look_at_strides_are_found(monkeypatch):
    def blind(array, layout):
        return np.ascontiguousarray(array[..., ::-1]) if layout.order is Order.STRIDED else array

    monkeypatch.setattr(generate, "lie", blind)
    (finding,) = checked(op_of()).errors
    assert "strided" in finding.message


def test_a_gradient_that_one_dtype_alone_takes():
    half = lambda x, grad: 2 * x * grad[:, None].astype(np.float64)  # noqa: E731
    (finding,) = checked(op_of("float[n, m] -> float[n]", half)).errors
    assert finding.kind == "gradient" and "is f64[n, m], and f32 of 2 axes by the signature" in finding.message


def test_what_has_no_kernel_is_told(monkeypatch):
    def refused(*_):
        raise gradients.UnsupportedError("no spelling")

    monkeypatch.setattr(gradients, "generate_from_graph", refused)
    assert checked(op_of()).skipped == "no spelling"


def test_a_build_that_fails_is_a_finding(monkeypatch):
    def fails(_):
        raise gradients.BuildError("cc: no")

    monkeypatch.setattr(gradients, "build", fails)
    (finding,) = checked(op_of()).errors
    assert (finding.kind, finding.message) == ("launch", "cc: no")


def test_layouts_are_those_of_kernels():
    assert {Layout(each).order for each in gradients.LAYOUTS} == {Order.PACKED, Order.STRIDED}
