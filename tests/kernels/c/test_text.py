from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import BuildError, InputError, SignatureError, UnsupportedError
from noyau.ir.loops import Role
from noyau.kernels.c.text import c_kernel, c_source
from tests.kernels.written import attached, called, op_of

LOOP = "for (int64_t i = 0; i < n; ++i)"


def f32(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def test_a_rest_is_one_size_of_its_product():
    op = op_of("f32[*batch, n] -> f32[*batch, n]")
    kernel = attached(
        op, "void f(const float *x, float *out, long batch, long n) { n *= batch; " + LOOP + " out[i] = 2 * x[i]; }"
    )
    for shape in [(3,), (2, 3), (2, 1, 4), (0, 3)]:
        assert np.array_equal(called(op, kernel, f32(*shape))[0], 2 * f32(*shape))


def test_scalars_come_by_value_and_rank_0_by_pointer():
    op = op_of("f32[n], f32, f32[] -> f32[n], last: f32", "x, by, plus")
    text = "void f(const float *x, float by, const float *plus, float *out, float *last, int n) "
    kernel = attached(op, text + "{ " + LOOP + " out[i] = x[i] * by + *plus; *last = n; }")
    first, last = called(op, kernel, f32(4), 2.0, np.array(3, np.float32))
    assert np.allclose(first, f32(4) * 2 + 3)
    assert last == 4


def test_an_integer_parameter_gives_a_size():
    op = op_of("f32[n], i64 -> i32[bins]", "x, bins")
    kernel = attached(
        op, "void f(const float *x, int64_t bins, int32_t *out, long n) { for (int i = 0; i < bins; ++i) out[i] = n; }"
    )
    assert called(op, kernel, f32(4), 3)[0].tolist() == [4, 4, 4]
    assert called(op, kernel, f32(2), 1)[0].tolist() == [2]


def test_a_size_that_nothing_binds_is_a_number_of_the_op():
    op = op_of("f32[n] -> i32[bins]", sizes={"bins": 3})
    kernel = attached(
        op, "void f(const float *x, int32_t *out, size_t bins) { for (size_t i = 0; i < bins; ++i) out[i] = bins; }"
    )
    assert called(op, kernel, f32(4))[0].tolist() == [3, 3, 3]


def test_constants_of_the_op_come_by_value():
    op = op_of("f32[n] -> f32[n]", "x, *, by=2.5, k=3")
    kernel = attached(
        op, "void f(const float *x, float *out, long n, double by, int k) { " + LOOP + " out[i] = x[i] * by + k; }"
    )
    assert np.allclose(called(op, kernel, f32(4))[0], f32(4) * 2.5 + 3)
    assert np.allclose(called(op, kernel, f32(4), by=np.float32(0.5), k=-1)[0], f32(4) * 0.5 - 1)


def test_constants_of_the_kernel_are_parameters_or_macros():
    op = op_of("f32[n] -> f32[n]")
    text = "void f(const float *x, float *out, long n, int K) { " + LOOP + " out[i] = BLOCK * 10 + K; }"
    kernel = attached(op, text, constants={"BLOCK": [4, 8], "K": 7})
    assert called(op, kernel, f32(1))[0].tolist() == [47]


def test_a_result_may_be_returned():
    op = op_of("f32[n], f32[n] -> f32", "x, y")
    text = (
        "static float dot(const float *x, const float *y, long n) { float s = 0; "
        + LOOP
        + " s += x[i] * y[i]; return s; }"
    )
    kernel = attached(op, text, entry="dot")
    assert np.allclose(called(op, kernel, f32(9), f32(9))[0], np.dot(f32(9), f32(9)))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint64, np.bool_])
def test_outputs_begin_with_a_number_or_a_copy(dtype):
    name = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "uint64": "u64", "bool": "bool"}
    op = op_of(
        f"{name[np.dtype(dtype).name]}[n] -> one: {name[np.dtype(dtype).name]}[n], {name[np.dtype(dtype).name]}[n]"
    )
    kernel = attached(op, "void f(const void *x, void *one, void *out) {}", init={"one": 1, "out": "x"})
    given = np.arange(3).astype(dtype)
    one, copy = called(op, kernel, given)
    assert one.astype(int).tolist() == [1, 1, 1]
    assert np.array_equal(copy, given)


def test_an_author_who_includes_nothing():
    op = op_of("f32[n] -> one: f32[n], f32[n]")
    text = "void f(const float *x, float *one, float *out, long n) { for (long i = 0; i < n; ++i) out[i] += x[i]; }"
    kernel = op.kernel(text, language="c", init={"one": 1, "out": "x"})
    one, doubled = called(op, kernel, f32(4))
    assert one.tolist() == [1] * 4
    assert np.array_equal(doubled, 2 * f32(4))


def test_init_may_be_a_function():
    op = op_of("f32[n] -> f32[n]", "x, *, k=3")
    kernel = attached(op, "void f(const float *x, float *out) {}", init=lambda k: {"out": k})
    assert called(op, kernel, f32(2))[0].tolist() == [3, 3]
    assert called(op, kernel, f32(2), k=4)[0].tolist() == [4, 4]


def test_a_kernel_may_write_over_its_inputs_which_are_copies():
    op = op_of("f32[n], f32[n] -> f32[n]", "p, g")
    kernel = attached(op, "void f(float *p, const float *g, long n) { " + LOOP + " p[i] -= g[i]; }", updates=("p",))
    p, g = f32(5), np.ones(5, np.float32)
    assert np.allclose(called(op, kernel, p, g)[0], p - 1)
    assert np.array_equal(p, f32(5))


def test_args_say_what_a_function_is_called_with():
    op = op_of("f32[rows, n] -> f32[n, rows]")
    text = """void f(long blocks, float *to, const float *from, int64_t across, int64_t down, double half) {
        for (long b = 0; b < blocks; ++b) for (long k = 0; k < 4 && b * 4 + k < across * down; ++k) {
            long at = b * 4 + k; to[at % across * down + at / across] = half * from[at]; } }"""

    def args(x, out, n):
        return (x.numel() + 3) // 4, out, x, x.stride(0), out.stride(0), 0.5

    kernel = attached(op, text, args=args)
    assert np.allclose(called(op, kernel, f32(5, 3))[0], f32(5, 3).T / 2)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (lambda x, out: (x, out), "args= of op[f] gives 2 arguments, and f takes 3"),
        (lambda x, out: x, "args= of op[f] gives a Buffer, and f takes 3"),
        (lambda x, out, n: (x, out, "n"), "args= of op[f] gives a str for int64_t n; it may give arrays and numbers"),
        (lambda x, out, n: (x, n, n), "args= of op[f] gives float *out no array, and it is a pointer"),
        (lambda x, out, n: (x, out, x), "args= of op[f] gives int64_t n an array, and it is no pointer"),
        (lambda x, out, n: (x, out, max(3, n)), "cannot be followed where sizes are names: n is compared"),
        (lambda x, out, n: (x, out, n / 2), "n is divided with /; use //; it may use + - * // % over sizes"),
    ],
)
def test_args_that_cannot_be_passed(args, told):
    op = op_of("f32[n], i8[n] -> f32[n]", "x, k")
    kernel = attached(op, "void f(const float *x, float *out, int64_t n) {}", args=args)
    with pytest.raises(SignatureError) as error:
        called(op, kernel, f32(3), np.zeros(3, np.int8))
    assert told in str(error.value)


def test_args_of_another_dtype():
    op = op_of("f32[n], i8[n] -> f32[n]", "x, k")
    kernel = attached(op, "void f(const float *x, float *out, int64_t n) {}", args=lambda k, out, n: (k, out, n))
    with pytest.raises(SignatureError, match=r"the parameter 'const float \*x' cannot hold k: i8\[n\]"):
        called(op, kernel, f32(3), np.zeros(3, np.int8))


def test_a_type_of_the_author_is_compared_by_the_compiler():
    op = op_of("f32[n] -> f32[n]")
    text = (
        "typedef {} real;\nvoid f(const real *x, real *out, long n) {{ "
        + LOOP.replace("{", "{{")
        + " out[i] = -x[i]; }}"
    )
    good, bad = attached(op, text.format("float")), attached(op, text.format("double"), name="g")
    assert np.array_equal(called(op, good, f32(3))[0], -f32(3))
    with pytest.raises(BuildError, match="incompatible"):
        called(op, bad, f32(3))


def test_arrays_of_c99_take_their_sizes_from_parameters():
    op = op_of("f32[rows, n] -> f32[n, rows]")
    text = """void f(int rows, int n, const float x[restrict rows][n], float out[n][rows]) {
        for (int r = 0; r < rows; ++r) for (int i = 0; i < n; ++i) out[i][r] = x[r][i]; }"""
    assert np.array_equal(called(op, attached(op, text), f32(3, 4))[0], f32(3, 4).T)


def test_names_of_the_author_do_not_meet_noyau_s():
    op = op_of("f32[N] -> f32[N]")
    text = """typedef int bool;
    #define N 3
    #define call 7
    static int extent, shapes;
    void f(const float *a, float *b, long c) { b[0] = c + extent + shapes + call; }"""
    assert called(op, attached(op, text), f32(1))[0].tolist() == [8]


def test_lines_of_the_author_keep_their_numbers():
    op = op_of("f32[n] -> f32[n]")
    kernel = attached(op, "void f(const float *x, float *out) {\n    oops;\n}", constants={"BLOCK": 4})
    with pytest.raises(BuildError, match=r"\b4:5: .*oops"):
        called(op, kernel, f32(3))


def test_a_size_too_large_for_its_parameter_is_refused():
    op = op_of("i8[n] -> i8")
    kernel = attached(op, "void f(const int8_t *x, int8_t *out, uint8_t n) { *out = n > 200; }")
    assert called(op, kernel, np.zeros(255, np.int8))[0] == 1
    with pytest.raises(InputError, match="the shape of input 0 does not fit"):
        called(op, kernel, np.zeros(256, np.int8))


def test_a_status_is_passed_on():
    op = op_of("f32[n] -> f32[n]")
    kernel = attached(op, "int f(const float *x, float *out, long n) { return n == 3; }")
    assert called(op, kernel, f32(2))
    with pytest.raises(InputError):
        called(op, kernel, f32(3))


def test_what_a_runtime_sees_of_it():
    instance = op_of("f32[*b, n], f32 -> f32[n]", "x, y").instance([DType.F32, DType.F32], [2, 0])
    kernel = c_kernel(instance, "rows_0_abc")
    assert [len(buffer.shape) for buffer in kernel.of(Role.INPUT)] == [2, 0]
    assert [binding.size for binding in kernel.binding] == ["own_b_0", "own_n"]
    assert len(kernel.launches) == 1


def test_only_c_has_a_text_in_c():
    op = op_of("f32[n] -> f32[n]")
    kernel = op.kernel("__global__ void f() {}", language="cuda", entry="f")
    with pytest.raises(UnsupportedError, match=r"op\[f\] is in cuda; only a kernel in c can be called from C"):
        c_source(kernel, op.instance([DType.F32], [1]), "f")


def test_constants_in_c_are_numbers():
    op = op_of("f32[n] -> f32[n]", "x, *, mode='fast'")
    kernel = attached(op, "void f(const float *x, float *out, int mode) {}")
    with pytest.raises(SignatureError, match="a kernel in C takes numbers as constants, and 'fast' is none"):
        called(op, kernel, f32(3))
