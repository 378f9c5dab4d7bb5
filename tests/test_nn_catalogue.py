from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import noyau
from noyau import nn
from noyau.dtypes import from_numpy
from noyau.kernels.programs.generate import Specialization, generate
from noyau.signatures.instances import bind
from tests.nn.cases import CASES, DTYPES, ULP, results

pytestmark = pytest.mark.filterwarnings("error::noyau.ReferenceWarning")
each_case = pytest.mark.parametrize("case", CASES, ids=str)
LAID = (nn.layer_norm, nn.softmax, nn.cross_entropy_each, nn.rope)  # a row, both axes, labels, pieces and broadcasts


def spread(array):
    return np.stack([array, array], -1)[..., 0]


def turned(array):
    return array.T.copy().T


def test_every_op_has_a_case():
    assert {case.op for case in CASES} == set(nn.CATALOGUE)
    assert {op.name for op in nn.CATALOGUE} | {"CATALOGUE", "cross_entropy"} == set(nn.__all__)


def every_dtype():
    """Each case in float32 and, by turns, in another dtype; the others take a compilation each, and are run by hand:
    what a check finds in any of them, test_no_kernel_is_wrong would."""
    others = [dtype for dtype in DTYPES if dtype != np.float32]
    for number, case in enumerate(CASES):
        yield pytest.param(case, np.dtype(np.float32), id=f"{case}-float32")
        for at, dtype in enumerate(others if not case.constants else ()):
            marks = () if at == number % len(others) else pytest.mark.long
            yield pytest.param(case, dtype, id=f"{case}-{dtype}", marks=marks)


@pytest.mark.parametrize(("case", "dtype"), [*every_dtype()])
def test_a_result_is_the_rounded_truth(case, dtype):
    arrays = case.arrays(dtype)
    wanted = case.wanted(arrays)
    for found, want in zip(results(case.op(*arrays, **case.constants)), wanted, strict=True):
        assert found.dtype == dtype
        assert found.shape == want.shape
        scale = max(np.abs(each).max() for each in wanted)
        np.testing.assert_allclose(found.astype(np.float64), want, rtol=0, atol=4 * ULP[str(dtype)] * scale)


@each_case
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)], ids=str)
def test_an_op_is_one_kernel(case, dtype):
    bound = bind(case.op.signature, case.arrays(dtype), {}, "op")
    constants = {**case.op.description.reference.constants, **case.constants}
    made = generate(case.op.description, Specialization(bound.instance, constants))
    assert made.program.single is not None
    assert made.program.cuts == ()


@pytest.mark.parametrize("op", nn.CATALOGUE, ids=lambda op: op.name)
def test_no_kernel_is_wrong(op, monkeypatch):
    """The certificate: adversarial numbers, sizes, layouts, dtypes, threads, as far as a moment goes."""
    monkeypatch.setattr("noyau.jobs.check.candidates.languages_for", lambda *, gpu: () if gpu else ("c",))
    found = noyau.check(op, budget_s=0.2)
    found.raise_if_bad()
    assert [kernel.language for kernel in found.kernels] == ["c"]


@pytest.mark.parametrize("case", [case for case in CASES if case.op in LAID], ids=str)
@pytest.mark.parametrize("lie", [spread, turned])
def test_arrays_may_lie_anyhow(case, lie):
    arrays = case.arrays(np.dtype(np.float32))
    found = case.op(*map(lie, arrays), **case.constants)
    np.testing.assert_allclose(found, case.op(*arrays, **case.constants), rtol=1e-5, atol=1e-6)


@each_case
def test_no_rows_give_no_results(case):
    arrays = case.arrays(np.dtype(np.float32))
    empty = [array[:0] if array.ndim == arrays[0].ndim or array.dtype.kind == "i" else array for array in arrays]
    wanted = case.wanted(tuple(empty))
    for found, want in zip(results(case.op(*empty, **case.constants)), wanted, strict=True):
        assert found.shape == want.shape
        np.testing.assert_array_equal(found, want.astype(np.float32))


@pytest.mark.parametrize("op", [nn.rms_norm, nn.layer_norm, nn.softmax, nn.log_softmax], ids=lambda op: op.name)
def test_rows_of_no_cells_are_rows_of_no_cells(op):
    empty = np.zeros((3, 0), np.float32)
    weights = [empty[0]] * (len(op.signature.inputs) - 1)
    assert op(empty, *weights).shape == (3, 0)


def test_the_dtypes_of_a_call_are_alike():
    x = np.zeros((3, 4), np.float32)
    with pytest.raises(noyau.errors.SignatureError, match=r"rms_norm: .* weight: f64"):
        nn.rms_norm(x, np.ones(4))
    with pytest.raises(noyau.errors.SignatureError, match="softmax: x: i64"):
        nn.softmax(x.astype(np.int64))


def test_another_op_takes_them_into_its_kernel():
    @noyau.op("f32[*batch, n], f32[n] -> f32[*batch, n]")
    def block(x, weight):
        return nn.swiglu(nn.rms_norm(x, weight), x)

    x, weight = (array.astype(np.float32) for array in (np.random.default_rng(0).random((3, 37)), np.ones(37)))
    bound = bind(block.signature, [x, weight], {}, "block")
    assert generate(block.description, Specialization(bound.instance)).program.single is not None
    np.testing.assert_allclose(block(x, weight), nn.swiglu(nn.rms_norm(x, weight), x), rtol=1e-6)


def test_the_dtypes_that_are_tried_are_those_of_the_family():
    assert {from_numpy(dtype) for dtype in DTYPES} == set(noyau.signatures.types.Family.FLOAT.members)
