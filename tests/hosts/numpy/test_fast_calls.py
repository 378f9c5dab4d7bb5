from __future__ import annotations

import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

from noyau.compiler.lowering.input_layouts import INNER, PACKED, STRIDED, Layout, Order, layout_of, lie
from noyau.dtypes import DType
from noyau.errors import BuildError, CheckError, InputError, OutsideError
from noyau.hosts.numpy import c_library as numpy_c_library
from noyau.hosts.numpy import fast_calls
from noyau.hosts.numpy.fast_calls import MISS, Argument, FastCall, in_python
from tests.hosts.numpy.kernels import fast_call_of

LAYOUTS = (PACKED, Layout(Order.PERMUTED, (1, 0)), INNER, STRIDED)


def axpy(x, y, a):
    return a * x + y


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def twice(x):
    return x + x


def total(x):
    return x.sum()


def taken(x, at):
    return x[at]


def both(x):
    return x + x, x * x


def shorter(x):
    return x[1:] - x[:-1]


@pytest.fixture(scope="module")
def fast_call() -> FastCall:
    return fast_call_of(axpy, "f32[n], f32[n], f32 -> f32[n]", numbers=(int, float))


@pytest.fixture(scope="module", params=["c", "python"])
def either(fast_call, request) -> FastCall:
    """The same fast call, by the runtime's C and without it."""
    if request.param == "c":
        return fast_call
    other = fast_call_of(axpy, "f32[n], f32[n], f32 -> f32[n]", numbers=(int, float))
    other.call = in_python(other)
    return other


def arguments(cells: int = 10) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(cells)
    return rng.random(cells, np.float32), rng.random(cells, np.float32)


def test_a_call_goes_through_c(fast_call):
    assert fast_call.in_c
    assert "fast_call" in repr(fast_call.call)


@pytest.mark.parametrize("a", [2.0, 2, np.float32(2), np.array(2, np.float32)])
def test_a_call_computes(either, a):
    x, y = arguments()
    made = either((x, y, a))
    assert type(made) is np.ndarray and made.dtype == np.float32
    np.testing.assert_array_equal(made, 2 * x + y)


def test_what_is_of_another_key_misses(either):
    x, y = arguments()
    wrong = {
        "a rank": (x[:, None], y, 2.0),
        "a dtype": (x.astype(np.float64), y, 2.0),
        "the order of bytes": (x.astype(">f4"), y, 2.0),
        "a layout": (x[::-1], y, 2.0),
        "a subclass": (x.view(np.recarray), y, 2.0),
        "a masked array": (np.ma.array(x), y, 2.0),
        "extents": (x[:5], y, 2.0),
        "their number": (x, y),
        "nothing": (),
        "a list": ([1.0] * 10, y, 2.0),
        "a scalar's dtype": (x, y, np.float64(2)),
        "a bool": (x, y, True),
        "text": (x, y, "2"),
        "a huge number": (x, y, 1 << 80),
        "None": (None, y, 2.0),
    }
    missed = {what: either(given) is MISS for what, given in wrong.items()}
    assert all(missed.values()), missed
    assert either([x, y, 2.0]) is MISS
    assert not MISS and repr(MISS) == "MISS"


def test_unaligned_arrays_miss(either):
    x, y = arguments()
    shifted = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32)
    assert not shifted.flags.aligned
    assert either((shifted, y, 2.0)) is MISS


def test_an_equal_dtype_that_is_another_object_is_the_same(either):
    x, y = arguments()
    other = np.dtype("f4", copy=True)
    assert other is not x.dtype
    np.testing.assert_array_equal(either((x.view(other), y, 1.0)), x + y)


def test_inputs_may_be_read_only_and_stay_as_they_are(either):
    x, y = arguments()
    before = x.tobytes()
    x.flags.writeable = False
    np.testing.assert_array_equal(either((x, y, 1.0)), x + y)
    assert x.tobytes() == before


@pytest.mark.parametrize("kept", LAYOUTS, ids=str)
def test_a_fast_call_is_for_one_layout(kept):
    through = fast_call_of(softmax, "f32[m, n] -> f32[m, n]", layouts=[kept])
    values = np.random.default_rng(1).random((5, 7), np.float32)
    arrays = [lie(values, each) for each in LAYOUTS] + [
        np.concatenate([values, values], 1)[::-2, 7:],
        np.repeat(values, 2, 1)[:, ::-2],
        np.broadcast_to(values[:1], (5, 7)),
        np.broadcast_to(values[:, :1], (5, 7)),
        values[:0],
        values[:1, :1],
    ]
    for array in arrays:
        made = through((array,))
        if layout_of(array) != kept:
            assert made is MISS, (array.shape, array.strides)
        elif array.size:
            np.testing.assert_allclose(made, softmax(array.astype(np.float64)), rtol=1e-6)
        else:
            assert made.shape == array.shape


def test_strides_that_are_no_whole_cells_miss():
    rows = np.zeros(4, [("tag", "u1"), ("x", "f4", 3)])["x"]
    through = fast_call_of(twice, "f32[m, n] -> f32[m, n]", layouts=[STRIDED])
    assert through((rows,)) is MISS


DTYPES = [dtype for dtype in DType if dtype not in (DType.OTHER, DType.BOOL) and dtype.numpy.itemsize < 16]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("cells", [0, 1, 17])
def test_every_dtype(dtype, cells):
    through = fast_call_of(twice, f"{dtype.value}[n] -> {dtype.value}[n]", dtype=dtype)
    x = np.arange(cells).astype(dtype.numpy)
    made = through((x,))
    assert made.dtype == dtype.numpy and made.shape == (cells,)
    doubled = (2 * np.arange(cells)).astype(dtype.numpy)  # 18 is no float8_e5m2
    np.testing.assert_array_equal(made.astype(np.float64), doubled.astype(np.float64))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.value)
def test_numbers_of_every_dtype_are_as_numpy_takes_them(dtype):
    through = fast_call_of(twice, f"{dtype.value} -> {dtype.value}", dtype=dtype, numbers=(int, float))
    number = 3 if dtype.kind in ("int", "uint") else 1.1
    for given in (number, dtype.numpy.type(number), np.array(number, dtype.numpy)):
        made = through((given,))
        assert made.dtype == dtype.numpy
        assert made == dtype.numpy.type(number) + dtype.numpy.type(number)
    assert isinstance(made, np.generic | ml_dtypes.bfloat16)
    assert through((1.1,)) is not MISS or dtype.kind in ("int", "uint")
    if dtype.kind in ("int", "uint"):
        limits = np.iinfo(dtype.numpy)
        outside = [through((number,)) is MISS for number in (limits.min - 1, limits.max + 1, 1.5, True)]
        assert outside == [True] * 4
        assert through((int(limits.max) // 2,)) == int(limits.max) // 2 * 2


def test_large_unsigned_numbers():
    through = fast_call_of(twice, "u64 -> u64", dtype=DType.U64, numbers=(int,))
    assert through(((1 << 63) - 1,)) == (1 << 64) - 2
    assert through(((1 << 63) + 5,)) == 10  # around


def test_numbers_only_where_they_are_taken():
    def through(arrays: bool, numbers: tuple[type, ...]) -> FastCall:
        return fast_call_of(twice, "f32 -> f32", arrays=arrays, numbers=numbers)

    assert through(True, ())((1.0,)) is MISS
    assert through(True, (int,))((1.0,)) is MISS
    assert through(True, (float,))((1,)) is MISS
    assert through(False, (float,))((np.float32(1),)) is MISS
    assert through(False, (float,))((np.array(1, np.float32),)) is MISS
    assert through(False, (float,))((1.0,)) == 2


def test_a_fast_call_for_one_value_and_one_for_axes_of_one_cell():
    fixed = fast_call_of(twice, "i64 -> i64", dtype=DType.I64, numbers=(int,), equals=7)
    assert fixed((7,)) == 14 and fixed((np.int64(7),)) == 14
    assert fixed((8,)) is MISS
    made = fast_call_of(twice, "f32[m, n] -> f32[m, n]")
    row = FastCall(made.path, made.symbol, [Argument(DType.F32, 2, ones=(True, False))])
    assert row((np.ones((1, 3), np.float32),)).shape == (1, 3)
    assert row((np.ones((2, 3), np.float32),)) is MISS
    assert row((np.ones((1, 1), np.float32),)) is MISS


@pytest.mark.parametrize("by_python", [False, True])
def test_the_last_arguments_may_be_constants(fast_call, by_python):
    (x, y), ends = arguments(), fast_call.arguments
    fixed = FastCall(fast_call.path, fast_call.symbol, ends[:1], constants=[y, np.array(2, np.float32)])
    call = in_python(fixed) if by_python else fixed
    assert call((x,)).tobytes() == fast_call((x, y, 2.0)).tobytes()
    assert call((x, y)) is MISS and call((x, y, 2.0)) is MISS and call(()) is MISS
    out = np.empty_like(x)
    assert call((x,), out) is out and out.tobytes() == fast_call((x, y, 2.0)).tobytes()
    with pytest.raises(InputError, match="shares memory"):
        call((x,), x)
    assert call((arguments(7)[0],)) is MISS
    with pytest.raises(CheckError, match="other arguments or results than its kernel"):
        FastCall(fast_call.path, fast_call.symbol, ends[:1], constants=[y])


def test_scalar_results_are_numpy_s():
    through = fast_call_of(total, "f32[n] -> f32")
    for cells in (0, 5, 100_000):
        made = through((np.ones(cells, np.float32),))
        assert type(made) is np.float32 and made == cells


def test_several_results_are_a_tuple():
    through = fast_call_of(both, "f32[n] -> low: f32[n], high: f32[n]")
    x, _ = arguments()
    low, high = through((x,))
    np.testing.assert_array_equal(low, x + x)
    np.testing.assert_array_equal(high, x * x)


def test_sizes_that_give_no_shape_miss():
    through = fast_call_of(shorter, "f32[n] -> f32[n - 1]")
    assert through((np.ones(1, np.float32),)).shape == (0,)
    assert through((np.ones(0, np.float32),)) is MISS


def test_an_index_out_of_bounds_names_the_op():
    through = fast_call_of(taken, "f32[n], i64[m] -> f32[m]")
    x, at = np.arange(5, dtype=np.float32), np.array([0, 4])
    assert [*through((x, at))] == [0, 4]
    with pytest.raises(OutsideError, match=r"taken: an index is outside the axis that it looks into"):
        through((x, np.array([0, 5])))


def test_a_fast_call_of_other_arguments_than_its_kernel_is_refused(fast_call):
    with pytest.raises(
        CheckError, match="axpy: its fast call has other arguments or results than its kernel, fast_call_axpy"
    ):
        FastCall(fast_call.path, fast_call.symbol, [Argument(DType.F32, 1)] * 3, name="axpy")
    with pytest.raises(BuildError, match="cannot be loaded"):
        FastCall(fast_call.path, "nothing_kernel", fast_call.arguments)


def test_calls_leave_no_references_behind(fast_call):
    x, y = arguments()
    large = np.ones(100_000, np.float32)
    out, number = np.empty_like(x), 1.5

    def refused() -> None:
        with pytest.raises(InputError):
            fast_call((x, y, 1.0), x)

    calls = [
        lambda: fast_call((x, y, number)),
        lambda: fast_call((x, y, np.float32(2)), out),
        lambda: fast_call((x, y, "no")),
        lambda: fast_call((large, large, 2)),
        lambda: fast_call((x, y, number), np.empty(20, np.float32)[::2]),
        refused,
    ]
    watched = (x, y, large, out, number, x.dtype, np.ndarray, MISS, None, ())
    for call in calls:
        call()
        gc.collect()
        before = [sys.getrefcount(each) for each in watched], len(gc.get_objects())
        for _ in range(10_000 if call is calls[0] else 300):
            call()
        gc.collect()
        after = [sys.getrefcount(each) for each in watched], len(gc.get_objects())
        grown = [b - a for a, b in zip(before[0], after[0], strict=True)]
        assert max(map(abs, grown)) < 50, grown
        assert after[1] - before[1] < 50


def test_a_fast_call_lives_as_long_as_its_function():
    call = fast_call_of(twice, "f32[n] -> f32[n]").call
    gc.collect()
    made = call((np.ones(3, np.float32),), None)
    assert [*made] == [2, 2, 2]


def test_threads_share_a_fast_call(fast_call):
    wrong: list[bool] = []

    def work(seed: int) -> None:
        x, y = arguments(1000 + 50_000 * (seed % 2))
        wrong.extend(not np.array_equal(fast_call((x, y, 2.0)), 2 * x + y) for _ in range(50))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == [False] * 400


def test_threads_in_a_first_call(monkeypatch):
    """Nobody has asked for the C yet, and each makes a fast call of its own."""
    fresh = numpy_c_library.Loader("arguments", lambda: numpy_c_library.open_texts(*numpy_c_library.FILES))
    monkeypatch.setattr(fast_calls, "library", fresh)
    ready = threading.Barrier(4)

    def first(number: int) -> bool:
        ready.wait()
        through = fast_call_of(twice, "f32[n] -> f32[n]")
        return through.in_c and through((np.full(300_000, number, np.float32),)).sum() == number * 600_000

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(first, range(4))) == [True] * 4
