from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import CheckError, SignatureError, UnsupportedError
from noyau.kernels.call import FunctionKernel, library_of
from noyau.signatures.types import Instance
from tests.kernels.written import attached, called, op_of


def f32(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def op_and_instance(text: str = "f32[n] -> f32[n]", parameters: str = "x", ranks=(1,)):
    op = op_of(text, parameters)
    return op, op.instance([DType.F32] * len(ranks), ranks)


X = f32(5)


def guarded(function, text="f32[n] -> f32[n]", given=(X,), **said) -> list[np.ndarray]:
    """The results of a function between guards."""
    op, instance = op_and_instance(text, ", ".join(f"x{k}" for k in range(len(given))), tuple(a.ndim for a in given))
    op.kernel(function, name="k", **said)
    return FunctionKernel(op.kernels["k"], instance, {}).call_guarded(*given)


def double(x, out):
    out[...] = 2 * x


def test_a_function_fills_its_outputs_or_returns_them():
    assert np.array_equal(guarded(double)[0], 2 * f32(5))
    assert np.array_equal(guarded(lambda x: 2 * x)[0], 2 * f32(5))
    low, high = guarded(lambda x: (x.min(), x.max()), "f32[n] -> low: f32, high: f32")
    assert (low, high) == (f32(5).min(), f32(5).max())


def test_a_function_that_reads_its_parameters_otherwise_is_told_what_to_do():
    def any_number(*arrays):
        arrays[-1][...] = arrays[0] * 2

    assert np.array_equal(guarded(any_number, returns=False)[0], 2 * f32(5))


def test_what_a_function_may_not_do():
    def beyond(x, out):
        double(x, out)
        np.lib.stride_tricks.as_strided(out, (6,))[5] = 1

    def before(x, out):
        double(x, out)
        out.base[4000:4096] = 0

    def changing(x, out):
        double(x, out)
        x[2] += 1

    def half(x, out):
        out[: len(x) // 2] = 0

    def failing(x, out):
        raise ValueError("not today")

    def failing_at_length(x, out):
        raise ValueError("in this way\n\n  File here:\n" + "and so on\n" * 40)

    for function, told in [
        (beyond, "op[k] wrote outside out, 1 cells after its end"),
        (changing, "op[k] changed its input x0"),
        (half, "op[k] never wrote 3 cells of out; the first is [2]"),
        (failing, "op[k] raised ValueError: not today"),
        (failing_at_length, "op[k] raised ValueError: in this way | File here: | and so on | and so on | ..."),
        (lambda x: x.astype(np.float64), "op[k] gave float64[5] as out, not float32[5]"),
        (lambda x: x[:2], "op[k] gave float32[2] as out, not float32[5]"),
        (lambda x: None, "op[k] returned NoneType, and an array is wanted: return it, or take the outputs"),
    ]:
        with pytest.raises(CheckError) as error:
            guarded(function)
        assert told in str(error.value)


def test_a_value_like_the_poison_is_no_unwritten_cell():
    def poison(x, out):
        out[...] = np.frombuffer(b"\xad\xde\xc0\xff", np.float32)

    assert np.isnan(guarded(poison)[0]).all()


def test_a_number_of_python_is_one_of_the_result():
    """As Numba returns every scalar."""
    (total,) = guarded(lambda x: float(x.sum()), "f32[n] -> f32")
    assert (total.dtype, total.shape) == (np.float32, ())
    (count,) = guarded(lambda x: len(x), "f32[n] -> i32")
    assert (count.dtype, int(count)) == (np.int32, 5)
    for function, text, told in (
        (lambda x: 2**40, "f32[n] -> i32", "gave int64[] as out, not int32[]"),
        (lambda x: np.float64(x.sum()), "f32[n] -> f32", "gave float64[] as out, not float32[]"),
        (lambda x: len(x), "f32[n] -> f32", "gave int64[] as out, not float32[]"),
    ):
        with pytest.raises(CheckError) as error:
            guarded(function, text)
        assert told in str(error.value)


def test_a_function_of_numba_with_signatures_gets_arrays_that_fit_them():
    import numba

    def add(x, y, out):
        for i in range(x.size):
            out[i] = x[i] + y[i]

    packed = numba.njit("void(float32[::1], float32[::1], float32[::1])")(add)
    wide, other = np.arange(10, dtype=np.float32), np.broadcast_to(np.float32(3), 5)
    (got,) = guarded(packed, "f32[n], f32[n] -> f32[n]", (wide[::2], other))
    assert got.tolist() == [3, 5, 7, 9, 11]
    doubles = numba.njit("void(float64[::1], float64[::1], float64[::1])")(add)
    with pytest.raises(CheckError, match=r"op\[k\] raised TypeError: No matching definition for argument type"):
        guarded(doubles, "f32[n], f32[n] -> f32[n]", (f32(5), f32(5)))


@pytest.mark.long
def test_what_numba_cannot_compile_for_transposed_arrays_gets_packed_ones():
    """A stencil in a parallel function: Numba ends in a bare AssertionError of its own."""
    import numba

    shift = numba.stencil(lambda x: x[0, -1])

    @numba.njit(parallel=True)
    def shifted(x, out):
        out[:] = shift(x)

    x = np.arange(20, dtype=np.float32).reshape(5, 4).T
    with pytest.raises(AssertionError):
        shifted(x, np.empty_like(x, order="C"))
    (got,) = guarded(shifted, "f32[m, n] -> f32[m, n]", (x,))
    assert got.tolist() == np.pad(x[:, :-1], ((0, 0), (1, 0))).tolist()


def test_an_error_without_a_text_is_told_by_its_place():
    def strict(x, out):
        raise AssertionError

    with pytest.raises(CheckError, match=rf"op\[k\] raised AssertionError in {__name__}, line \d+$"):
        guarded(strict)


def test_an_error_of_compiled_python_without_a_text_is_told_by_its_file():
    import numba

    @numba.njit
    def strict(x, out):
        if x[0] < 1e9:
            raise AssertionError

    with pytest.raises(CheckError, match=r"op\[k\] raised AssertionError in .*test_call\.py, line \d+$"):
        guarded(strict)


def test_args_init_and_updates_of_a_function():
    def step(by, target, n):
        target[...] += by * n

    text, given = "f32[n], f32 -> f32[n]", (f32(4), np.float32(2))
    args = {"args": lambda x1, out, n: (x1, out, n)}
    assert np.allclose(guarded(step, text, given, init={"out": "x0"}, **args)[0], f32(4) + 8)
    assert np.allclose(guarded(step, text, given, init=lambda n: {"out": n}, **args)[0], 12)
    args = {"args": lambda x0, x1, n: (x1, x0, n)}
    assert np.allclose(guarded(step, text, given, updates=("x0",), **args)[0], f32(4) + 8)


def test_functions_of_the_author_get_the_number_of_a_run_time_scalar():
    told = {}

    def args(x, by, count, out, n):
        told.update(by=by, count=count)
        return x, by * count, out

    op = op_of("f32[n], f32, i8 -> f32[n]", "x, by, count")
    op.kernel(lambda x, by, out: np.multiply(x, by, out=out), name="k", args=args, init=lambda by: {"out": by})
    instance = op.instance([DType.F32, DType.F32, DType.I8], [1, 0, 0])
    run = FunctionKernel(op.kernels["k"], instance, {})
    assert np.array_equal(run(X, np.float32(1.5), np.int8(100))[0], X * np.float32(150))
    assert told == {"by": 1.5, "count": 100} and type(told["by"]) is np.float32 and type(told["count"]) is int


def test_args_of_a_function_are_a_tuple():
    with pytest.raises(SignatureError, match=r"args= of op\[k\] gives a list; it gives a tuple of all arguments"):
        guarded(double, args=lambda x0, out: [x0, out])


def test_what_args_leaves_of_a_kernels_constants_goes_by_name():
    def last(x, out, n, BLOCK):
        out[:] = x * BLOCK * n

    def named(x, out, *, BLOCK):
        out[:] = x * BLOCK

    def fewer(x, out):
        out[:] = x

    constants = {"constants": {"BLOCK": [3, 5]}}
    assert np.allclose(guarded(last, args=lambda x0, out, n: (x0, out, n), **constants)[0], X * 15)
    assert np.allclose(guarded(last, args=lambda x0, out, n, BLOCK: (x0, out, n, BLOCK + 1), **constants)[0], X * 20)
    assert np.allclose(guarded(named, args=lambda x0, out: (x0, out), **constants)[0], X * 3)
    assert np.allclose(guarded(fewer, args=lambda x0, out, BLOCK: (x0, out), **constants)[0], X)


def test_a_constant_that_nobody_takes_is_refused():
    with pytest.raises(SignatureError, match=r"constants= of op\[k\] names BLOCK, and it takes no BLOCK"):
        guarded(lambda x0, out: None, constants={"BLOCK": 3})


def test_constants_go_by_name():
    def shifted(x, out, *, by=0, BLOCK=1):
        out[...] = x + by * BLOCK

    op = op_of("f32[n] -> f32[n]", "x, *, by=0")
    op.kernel(shifted, constants={"BLOCK": [3, 5]})
    kernel = op.kernels["shifted"]
    assert np.allclose(called(op, kernel, f32(4))[0], f32(4))
    assert np.allclose(called(op, kernel, f32(4), by=2)[0], f32(4) + 6)


def test_buffers_have_the_strides_of_the_arrays():
    seen = {}

    def args(x, out):
        seen["strides"] = (x.strides, x.shape, x.dtype)
        return x, out

    op = op_of("f32[n, m] -> f32[n, m]")
    op.kernel(double, args=args)
    got = called(op, op.kernels["double"], f32(6, 4).T[::2])[0]
    assert np.array_equal(got, 2 * f32(6, 4).T[::2])
    assert seen["strides"] == ((2, 4), (2, 6), np.float32)


def test_a_kernel_of_a_gpu_is_not_called_on_arrays():
    op, instance = op_and_instance()
    op.kernel("__global__ void f(float *x, float *out) {}", language="cuda", entry="f")
    with pytest.raises(UnsupportedError, match=r"op\[f\] is in cuda, which NumPy arrays cannot be given to"):
        FunctionKernel(op.kernels["f"], instance, {})(f32(3))


def test_a_kernel_in_c_is_built_once():
    op = op_of("f32[n] -> f32[n]")
    kernel = attached(op, "void f(const float *x, float *out, long n) { for (long i = 0; i < n; ++i) out[i] = x[i]; }")
    instance: Instance = op.instance([DType.F32], [1])
    assert library_of(kernel, instance, {}) == library_of(kernel, instance, {})
    assert library_of(kernel, instance, {})[0].exists()


def test_flags_are_the_author_s():
    op = op_of("f32[n] -> f32[n]")
    text = "void f(const float *x, float *out, long n) { for (long i = 0; i < n; ++i) out[i] = EXTRA; }"
    kernel = attached(op, text, options={"flags": ["-DEXTRA=5"]})
    assert called(op, kernel, f32(2))[0].tolist() == [5, 5]
