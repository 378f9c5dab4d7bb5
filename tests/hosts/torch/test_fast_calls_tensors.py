"""Kernels on tensors: by C where torch lets it read them, and by Python."""

from __future__ import annotations

import errno

import numpy as np
import pytest
import torch

import noyau
from noyau.compiler.lowering.input_layouts import INNER, STRIDED, Layout, Order
from noyau.dtypes import DType
from noyau.errors import CheckError, InputError, OutputError
from noyau.frontends.torch.tensors import FROM_TORCH, TO_TORCH
from noyau.hosts.numpy import c_library as numpy_c_library
from noyau.hosts.numpy.c_library import Loader
from noyau.hosts.numpy.fast_calls import MISS, Argument
from noyau.hosts.torch import fast_calls
from noyau.hosts.torch.fast_calls import TensorFastCall
from noyau.hosts.torch.tensors import array_of, from_torch, tensor_of
from noyau.kernels.programs.generate import build
from noyau.ops import torch_entry


@noyau.op("any[*b, n] -> any[*b, n]")
def doubled(x):
    return x + x


@noyau.op("f32[n], f32 -> low: f32[n], high: f32[n]")
def around(x, by):
    return x - by, x + by


@noyau.op("f32[n], i64[k] -> f32[k]")
def picked(x, at):
    return x[at]


def fast_call(op, *ends):
    made = op.generate("c", [end.dtype for end in ends], [end.rank for end in ends])
    built = build(made)
    return TensorFastCall(built.library, f"{made.program.kernels[0].name}_kernel", ends, op.name)


@pytest.fixture(params=["in C", "in Python"])
def through(request):
    """A fast call as it is called: the function in C, or what stands in for it."""
    return (lambda fast_call: fast_call.call) if request.param == "in C" else fast_calls.in_python


def test_fast_calls_go_to_c():
    assert fast_call(doubled, Argument(DType.F32, 1)).in_c


def test_a_fast_call_that_there_was_no_room_for_goes_to_c_as_soon_as_there_is(monkeypatch):
    """Also for who holds the call of the fast call, as programs of several kernels and modules do."""
    full = OutputError("no room")
    full.__cause__, x, now = OSError(errno.ENOSPC, "as the disk says"), torch.arange(3.0), [1000.0]
    there = fast_calls.library
    fresh, tries = Loader("tensors", lambda: room(there)), [full]

    def room(there):
        if tries:
            raise tries.pop()
        return there()

    monkeypatch.setattr(numpy_c_library, "monotonic", lambda: now[0])
    monkeypatch.setattr(fast_calls, "library", fresh)
    with pytest.warns(RuntimeWarning, match="which tensors are read by, cannot be built now: no room"):
        made = fast_call(doubled, Argument(DType.F32, 1))
    held = made.call
    assert not made.in_c
    assert held((x,)).tolist() == [0, 2, 4]
    assert not made.in_c
    now[0] += numpy_c_library.AGAIN_S
    assert held((x,)).tolist() == [0, 2, 4]
    assert made.in_c
    assert type(made.call).__name__ == "builtin_function_or_method"
    assert held((x,)).tolist() == [0, 2, 4]


def test_an_op_keeps_no_way_that_waits_for_room(monkeypatch):
    op, x = noyau.op("f32[n] -> f32[n]")(lambda x: x + x), torch.arange(3.0)
    calls = torch_entry.tensor_calls(op.calls)
    with monkeypatch.context() as during:
        during.setattr(fast_calls.library, "awaits_room", lambda: True)
        assert op(x).tolist() == [0, 2, 4]
        assert calls.plain == ()
    assert op(x).tolist() == [0, 2, 4]
    assert len(calls.plain) == 1


@pytest.mark.parametrize("dtype", [*FROM_TORCH.values()], ids=lambda dtype: dtype.value)
def test_every_dtype_goes_in_and_comes_out(dtype, through):
    wanted = torch.tensor([[1, 0, 1], [0, 1, 1]]).to(TO_TORCH[dtype])
    made = through(fast_call(doubled, Argument(dtype, 2)))((wanted,))
    assert type(made) is torch.Tensor
    assert from_torch(made.dtype) is dtype
    assert (array_of(made) == doubled.reference(array_of(wanted))).all()


def test_several_results_and_numbers(through):
    call = through(fast_call(around, Argument(DType.F32, 1), Argument(DType.F32, 0, numbers=(int, float))))
    low, high = call((torch.arange(3.0), 0.5))
    assert low.tolist() == [-0.5, 0.5, 1.5]
    assert high.tolist() == [0.5, 1.5, 2.5]
    assert call((torch.arange(3.0), torch.tensor(1.0)))[1].tolist() == [1, 2, 3]
    assert call((torch.arange(3.0), "1")) is MISS


@pytest.mark.parametrize(
    "other",
    [
        torch.zeros(3, dtype=torch.float64),
        torch.zeros(2, 3),
        torch.zeros(6)[::2],
        torch.zeros(3, device="meta"),
        torch.zeros(3, dtype=torch.complex64),
        torch.eye(3)[0].to_sparse(),
        np.zeros(3, np.float32),
        None,
    ],
    ids=lambda each: f"{type(each).__name__} {getattr(each, 'dtype', '')} {getattr(each, 'layout', '')}",
)
def test_what_is_of_another_key_is_missed(other, through):
    assert through(fast_call(doubled, Argument(DType.F32, 1)))((other,)) is MISS


def test_subclasses_other_than_parameters_are_missed():
    class Mine(torch.Tensor):
        pass

    call = fast_call(doubled, Argument(DType.F32, 1)).call
    assert call((torch.ones(3).as_subclass(Mine),)) is MISS
    assert call((torch.nn.Parameter(torch.ones(3)),)).tolist() == [2, 2, 2]
    assert not call((torch.nn.Parameter(torch.ones(3)),)).requires_grad


@pytest.mark.parametrize(
    ("layout", "x"),
    [
        (Layout(Order.PERMUTED, (1, 0)), torch.arange(6.0).reshape(2, 3).T),
        (INNER, torch.arange(20.0).reshape(4, 5)[:, 1:4]),
        (INNER, torch.arange(3.0).expand(4, 3)),
        (STRIDED, torch.arange(20.0).reshape(4, 5)[:, ::2]),
        (STRIDED, torch.arange(4.0)[:, None].expand(4, 3)),
    ],
    ids=["permuted", "inner", "expanded rows", "strided", "expanded columns"],
)
def test_layouts_are_told_apart_as_numpy_has_them(layout, x, through):
    made = noyau.kernels.programs.generate.generate(
        doubled.description,
        noyau.kernels.programs.generate.Specialization(doubled.instance([DType.F32], [2]), layouts=(layout,)),
    )
    found = TensorFastCall(
        build(made).library, f"{made.program.kernels[0].name}_kernel", [Argument(DType.F32, 2, layout)], "doubled"
    )
    made = through(found)((x,))
    assert torch.equal(made.T if layout.axes else made, x * 2) or torch.equal(made, x * 2)
    assert through(found)((x.contiguous(),)) is MISS


def test_nothing_and_a_lot_of_cells(through):
    call = through(fast_call(doubled, Argument(DType.F32, 2)))
    assert call((torch.zeros(0, 5),)).shape == (0, 5)
    large = torch.randn(700, 1000)
    assert torch.equal(call((large,)), large * 2)


def test_large_results_lie_in_memory_that_was_used_before():
    call = fast_call(doubled, Argument(DType.F32, 1)).call
    large = torch.ones(1 << 20)
    first = call((large,))
    address = first.data_ptr()
    kept = first[1:3]
    del first
    assert call((large,)).data_ptr() != address
    del kept
    assert call((large,)).data_ptr() == address


def test_results_do_not_depend_on_the_number_of_threads():
    call, x = fast_call(doubled, Argument(DType.F32, 2)).call, torch.randn(300, 1001)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = call((x,))
        torch.set_num_threads(4)
        assert torch.equal(alone, call((x,)))
    finally:
        torch.set_num_threads(before)


def test_errors_of_the_kernel(through):
    ends = (Argument(DType.F32, 1), Argument(DType.I64, 1))
    with pytest.raises(InputError, match="picked: an index is outside the axis"):
        through(fast_call(picked, *ends))((torch.zeros(3), torch.tensor([5])))
    made = fast_call(doubled, Argument(DType.F32, 1))
    with pytest.raises(CheckError, match="doubled: its fast call has other arguments or results than its kernel"):
        TensorFastCall(made.path, made.symbol, [Argument(DType.F32, 2)], "doubled")


@pytest.mark.parametrize("array", [np.arange(3)[::-1], np.broadcast_to(np.float32(2), (3,))], ids=["negative", "fixed"])
def test_arrays_that_torch_does_not_take_are_copied(array):
    assert tensor_of(array).tolist() == array.tolist()


def test_what_is_not_huge_may_come_from_torch(monkeypatch):
    asked = []
    monkeypatch.setattr(fast_calls, "pooled_memory", lambda *told: asked.append(told) or torch.zeros(1))
    made = fast_calls.mapped_memory((3, 4), torch.float32, torch.device("cpu"))
    assert made.shape == (3, 4) and made.dtype is torch.float32 and not asked
    fast_calls.mapped_memory((fast_calls.MAPPED_BYTES,), torch.int8, torch.device("cpu"))
    assert len(asked) == 1
