"""Arrays of other packages: same pointer, strides kept, memory given back once, read-only respected."""

from __future__ import annotations

import array as buffers
import gc
import sys
import types
import weakref

import ml_dtypes
import numpy as np
import pytest

from noyau.errors import UnsupportedError
from noyau.hosts.numpy import dlpack
from noyau.hosts.numpy.dlpack import as_array, is_foreign, leading, return_like, speaks
from tests.hosts.numpy.producers import HELD, Producer

PLAIN = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64".split()
LOW = "bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e3m4 float8_e4m3".split()
LOW += ["float8_e4m3b11fnuz", "float8_e8m0fnu"]


def cells(name: str, *shape: int) -> np.ndarray:
    dtype = np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
    return (np.arange(np.prod(shape, dtype=int)) % 7 + 1).reshape(shape).astype(dtype)


VIEWS = {
    "packed": lambda a: a,
    "transposed": lambda a: a.T,
    "offset": lambda a: a[1:, 2:],
    "every other": lambda a: a[::2, ::3],
    "backwards": lambda a: a[::-1, ::-1],
    "expanded": lambda a: np.broadcast_to(a[:1], a.shape),
    "empty": lambda a: a[:, :0],
    "no axes": lambda a: a[1, 2, ...],
    "a row": lambda a: a[2],
}


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e5m2"])
def test_the_cells_are_the_same(name, view, versioned):
    whole = cells(name, 4, 6)
    there = VIEWS[view](whole)
    got = as_array(Producer(there, versioned=versioned))
    assert type(got) is np.ndarray
    assert (got.dtype, got.shape) == (there.dtype, there.shape)
    assert got.tobytes() == there.tobytes()
    if there.size:
        assert got.ctypes.data == there.ctypes.data
        assert [s for s, n in zip(got.strides, got.shape, strict=True) if n > 1] == [
            s for s, n in zip(there.strides, there.shape, strict=True) if n > 1
        ]


@pytest.mark.parametrize("numpy_asks", [True, False])
@pytest.mark.parametrize("name", PLAIN + LOW)
def test_every_dtype(name, numpy_asks, monkeypatch):
    """Of a NumPy that asks for no version (before 2.1) nothing is asked."""
    monkeypatch.setattr(dlpack, "_ASKS_FOR_VERSION_1", numpy_asks and dlpack._ASKS_FOR_VERSION_1)
    there = cells(name, 3, 5)
    producer = Producer(there)
    got = as_array(producer)
    assert got.dtype == there.dtype
    assert got.tobytes() == there.tobytes()
    assert got.flags.writeable
    got[1, 2] = got[0, 0]
    assert there[1, 2] == there[0, 0]


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
@pytest.mark.parametrize("view", ["packed", "transposed", "empty", "no axes"])
@pytest.mark.parametrize("versioned", [True, False])
def test_memory_is_given_back_once_and_not_before_the_last_view_is_gone(name, view, versioned):
    producer = Producer(VIEWS[view](cells(name, 4, 6)), versioned=versioned)
    got = as_array(producer)
    part = got[..., None][..., 0]
    del got
    producer.drop_capsules()
    gc.collect()
    if part.size:
        assert producer.given - producer.deleted == 1
        assert part.tobytes() == producer.array.tobytes()
    del part
    gc.collect()
    assert producer.given == producer.deleted


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
@pytest.mark.parametrize("view", ["packed", "empty"])
def test_what_is_read_only_stays_so(name, view):
    assert not as_array(Producer(VIEWS[view](cells(name, 4, 6)), read_only=True)).flags.writeable
    assert as_array(Producer(VIEWS[view](cells(name, 4, 6)), read_only=False)).flags.writeable


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_without_a_version_nothing_tells_that_it_may_be_written(name):
    assert not as_array(Producer(cells(name, 4), versioned=False)).flags.writeable


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_byte_offsets_and_missing_strides(name):
    there = cells(name, 4, 6)
    got = as_array(Producer(there, offset=64))
    assert (got.ctypes.data, got.tobytes()) == (there.ctypes.data, there.tobytes())
    got = as_array(Producer(there, without_strides=True, versioned=False))
    assert (got.strides, got.tobytes()) == (there.strides, there.tobytes())


def test_a_gpu_is_refused_before_anything_is_handed_over():
    producer = Producer(cells("float32", 3), device=(2, 1))
    with pytest.raises(UnsupportedError, match=r"^x lies on cuda:1, and this kernel runs on the CPU; copy it there"):
        as_array(producer, "x")
    assert producer.given == 0
    with pytest.raises(UnsupportedError, match="x lies on device type 9:0, and"):
        as_array(Producer(cells("float32", 3), device=(9, 0)), "x")
    with pytest.raises(UnsupportedError, match="x lies on cuda, and"):
        as_array(types.SimpleNamespace(__cuda_array_interface__={}), "x")


def test_memory_pinned_for_a_gpu_is_memory():
    there = cells("bfloat16", 3)
    assert as_array(Producer(there, device=(3, 0))).ctypes.data == there.ctypes.data


def test_an_axis_below_0_is_refused():
    producer = Producer(cells("float32", 3))
    capsule = producer.__dlpack__(max_version=(1, 1))
    list(HELD.values())[-1][1][0] = -3
    with pytest.raises(UnsupportedError, match=r"x hands over an array of shape \[-3\], and no axis is below 0"):
        as_array(types.SimpleNamespace(__dlpack__=lambda **_: capsule), "x")
    producer.drop_capsules()
    assert producer.deleted == 1


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"bits": 4, "code": 17}, r"x has a dtype of DLPack that NumPy cannot hold \(code 17, 4 bits, 1 lanes\); cast"),
        ({"lanes": 4}, "code 2, 32 bits, 4 lanes"),
        ({"bits": 128, "code": 0}, "code 0, 128 bits"),
        ({"bits": 24}, "code 2, 24 bits"),
        ({"major": 2}, "x speaks DLPack 2, and only versions up to 1 are known"),
    ],
)
def test_what_numpy_cannot_hold_is_refused_and_given_back(said, told):
    producer = Producer(cells("float32", 3), **said)
    with pytest.raises(UnsupportedError, match=told):
        as_array(producer, "x")
    producer.drop_capsules()
    assert producer.given == producer.deleted > 0


class Unwilling(Producer):
    def __dlpack__(self, **wanted):
        raise BufferError("not\ntoday")


class Lying(Producer):
    def __dlpack__(self, **wanted):
        return "a capsule"


class Used(Producer):
    def __dlpack__(self, **wanted):
        capsule = super().__dlpack__(**wanted)
        as_array(types.SimpleNamespace(__dlpack__=lambda **_: capsule))
        return capsule


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Unwilling, "x does not hand over its memory, as Unwilling says: not today"),
        (Lying, "x hands over 'a capsule', which is no unused capsule of DLPack"),
        (Used, "which is no unused capsule of DLPack"),
    ],
)
def test_a_bad_producer_is_one_clear_line(kind, told):
    with pytest.raises(UnsupportedError, match=told):
        as_array(kind(cells("float32", 3)), "x")


def test_views_that_numpy_cannot_see_are_refused():
    producer = Producer(cells("float32", 3))
    producer.requires_grad = True
    with pytest.raises(UnsupportedError, match=r"x cannot be taken: it requires a gradient, .* give x\.detach\(\)"):
        as_array(producer, "x")
    producer.requires_grad, producer.is_neg = False, lambda: True
    with pytest.raises(UnsupportedError, match=r"a view that negates its memory as it is read; give x\.resolve_neg"):
        as_array(producer, "x")


def test_array_interfaces_and_buffers_share_their_memory():
    there = cells("float32", 4, 6)[:, ::2]
    interface = types.SimpleNamespace(__array_interface__=there.__array_interface__, kept=there)
    assert as_array(interface).ctypes.data == there.ctypes.data
    assert as_array(interface).strides == there.strides
    listed = buffers.array("f", [1, 2, 3])
    as_array(listed)[1] = 5
    assert listed[1] == 5
    assert as_array(bytearray(b"ab")).tolist() == [97, 98]
    assert not as_array(b"ab").flags.writeable
    assert as_array(memoryview(there)).strides == there.strides


def test_numpy_arrays_are_themselves_and_numbers_are_none():
    there = cells("float32", 4)
    assert as_array(there) is there
    for thing in (1, 2.0, "text", [1, 2], None):
        assert not speaks(thing)
        with pytest.raises(UnsupportedError, match=r"x is no array: .* speaks neither DLPack nor Python's buffers"):
            as_array(thing, "x")
    assert all(map(speaks, (there, Producer(there), b"", types.SimpleNamespace(__array_interface__=1))))


def test_the_first_array_of_another_package_leads():
    there = cells("float32", 4)
    first, second = Producer(there), Producer(there)
    assert leading([1.0, there, first, second]) is first
    assert leading([there, 2, np.float32(1), b"ab"]) is None
    assert [is_foreign(thing) for thing in (first, there, np.float32(1), 1)] == [True, False, False, False]


def package(monkeypatch, **held):
    """A package of arrays that there is; and an array of it."""
    made = types.ModuleType("spoken_arrays")
    vars(made).update(held)
    monkeypatch.setitem(sys.modules, "spoken_arrays", made)
    kind = type("Array", (Producer,), {"__module__": "spoken_arrays.inner"})
    return kind(cells("float32", 2))


def test_results_come_as_arrays_of_the_package(monkeypatch):
    result = cells("float32", 4)
    like = package(monkeypatch, from_dlpack=lambda given: ("taken", given))
    assert return_like(result, like) == ("taken", result)
    like.__array_namespace__ = lambda: types.SimpleNamespace(from_dlpack=lambda given: ("by the standard", given))
    assert return_like(result, like) == ("by the standard", result)


def test_results_of_unknown_packages_are_numpy_arrays(monkeypatch):
    result = cells("float32", 4)
    assert return_like(result, None) is result
    assert return_like(result, result) is result
    assert return_like(result, Producer(result)) is result  # its module has no from_dlpack
    assert return_like(result, package(monkeypatch)) is result


def test_short_floats_go_as_bits(monkeypatch):
    class Bits:
        def __init__(self, given):
            self.given = np.from_dlpack(given)

        def view(self, dtype):
            return self.given.view(dtype)

    result = cells("bfloat16", 2, 3)
    got = return_like(result, package(monkeypatch, from_dlpack=Bits, bfloat16=ml_dtypes.bfloat16))
    assert got.dtype == result.dtype
    assert got.ctypes.data == result.ctypes.data
    assert return_like(result, package(monkeypatch, from_dlpack=Bits)) is result


# With torch.


@pytest.fixture
def torch():
    import torch

    return torch


def require_handover(tensor):
    """Skip where this torch itself says that it has no such capsule."""
    try:
        tensor.__dlpack__()
    except (BufferError, RuntimeError) as error:
        pytest.skip(f"this torch hands over no {tensor.dtype}: {error}")


NAMES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64".split()
FLOAT8 = "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz".split()


@pytest.mark.parametrize("name", [*NAMES, *FLOAT8])
def test_torch_in_and_out(torch, name):
    whole = torch.arange(1, 25).reshape(4, 6).to(torch.float32).to(getattr(torch, name))
    require_handover(whole)
    for there in (whole, whole.T, whole[1:, ::2], whole[:1].expand(4, 6), whole[:, :0], whole[1, 2]):
        got = as_array(there)
        assert got.dtype == cells(name, 1).dtype
        assert list(got.shape) == list(there.shape)
        assert got.tolist() == there.to(torch.float32).tolist()
        if there.numel():
            assert got.ctypes.data == there.data_ptr()
        if not got.flags.writeable:
            continue  # a torch of a time before versions does not tell, and takes nothing back that is read-only
        back = return_like(got, there)
        assert type(back) is torch.Tensor
        assert back.dtype is there.dtype
        assert back.stride() == there.stride() or not there.numel()
        assert back.data_ptr() == there.data_ptr() or not there.numel()


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_results_live_as_long_as_the_tensor(torch, name):
    result = cells(name, 1000)
    gone = weakref.ref(result)
    tensor = return_like(result, torch.zeros(1))
    del result
    gc.collect()
    assert gone() is not None
    assert tensor[3] == 4
    del tensor
    gc.collect()
    assert gone() is None


def test_tensors_that_numpy_cannot_see(torch):
    for tensor, told in [
        (torch.zeros(3, requires_grad=True), "requires a gradient"),
        (torch._neg_view(torch.ones(3)), "negates its memory"),
        (torch.ones(3, dtype=torch.complex64).conj(), "conjugate bit"),
        (torch.ones(3).to_sparse(), "does not hand over its memory, as Tensor says"),
        (torch.ones(3, device="meta"), "does not hand over its memory, as Tensor says"),
    ]:
        with pytest.raises(UnsupportedError, match=told):
            as_array(tensor, "x")
