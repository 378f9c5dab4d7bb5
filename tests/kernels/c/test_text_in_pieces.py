"""Functions in C that take a range: called for pieces of it, in any order, on several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from noyau.errors import SignatureError
from noyau.kernels.call import library_of
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.op import Op
from noyau.signatures.instances import bind
from noyau.toolchain.c.library import Native
from tests.kernels.written import attached, called, op_of

DOUBLED = "{ for (int64_t i = begin; i < end; ++i) for (int64_t k = 0; k < n; ++k) out[i * n + k] = 2 * x[i * n + k]; }"
TAKES = "const float *x, float *out, long n, int64_t begin, int64_t end"


def rows() -> Op:
    return op_of("f32[rows, n] -> f32[rows, n]")


def f32(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def native(op: Op, kernel: UserKernel, *arguments: object) -> Native:
    bound = bind(op.signature, arguments, op.known_sizes(dict(op.description.reference.constants)), op.name)
    return Native(*library_of(kernel, bound.instance, {}))


def every_piece(op: Op, kernel: UserKernel, *arguments: object) -> list[tuple[int, int]]:
    """The pieces that the function is called for, seven of them from the last to the first: it writes them down."""
    *_, seen = native(op, kernel, *arguments)(*map(np.asarray, arguments), pieces=7, order=last_first)
    return [tuple(map(int, each)) for each in seen if each[1] > each[0]]


def last_first(count: int) -> Iterable[int]:
    return reversed(range(count))


@pytest.mark.parametrize("pieces", [1, 3, 100])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(9, 4), (1, 4), (2, 0), (0, 4)])
def test_it_runs_over_the_first_dim_of_the_first_output(shape, pieces, threads):
    op = rows()
    kernel = attached(op, f"void f({TAKES}) {DOUBLED}")
    (found,) = native(op, kernel, f32(*shape))(f32(*shape), pieces=pieces, order=last_first, threads=threads)
    assert np.array_equal(found, 2 * f32(*shape))
    assert np.array_equal(called(op, kernel, f32(*shape))[0], found)


WROTE = "{ for (int64_t i = begin; i < end; ++i) { seen[2 * i] = begin; seen[2 * i + 1] = end; } }"


@pytest.mark.parametrize(
    ("launch", "extent"),
    [
        (None, 12),
        ("n", 3),
        ("rows", 4),
        (lambda rows, n: rows * n, 12),
        (lambda x: x.numel() // 2, 6),
        (lambda seen: seen.shape[0] - 2, 10),
        (lambda n: n - 7, 0),
        (lambda: 5, 5),
    ],
)
def test_launch_says_how_far_it_goes(launch: Callable | str | None, extent: int):
    op = op_of("f32[rows, n] -> seen: i64[rows * n, 2]")
    text = f"void f(const float *x, int64_t *seen, int64_t begin, int64_t end) {WROTE}"
    kernel = attached(op, text, launch=launch, init={"seen": 0})
    pieces = every_piece(op, kernel, f32(4, 3))
    assert sorted(cell for each in set(pieces) for cell in range(*each)) == list(range(extent))
    assert len(set(pieces)) == min(extent, 7)


@pytest.mark.parametrize("wished", [{"init": {"out": "x", "one": 1}}, {"init": lambda k: {"out": "x", "one": k}}])
def test_what_outputs_hold_before_is_there_before_any_piece(wished):
    op = op_of("f32[rows, n] -> f32[rows, n], one: f16[3]", "x, *, k=1")
    text = "void f(const float *x, float *out, void *one, long n, int64_t begin, int64_t end) "
    kernel = attached(op, text + DOUBLED.replace("= 2 *", "+="), **wished)
    found = native(op, kernel, f32(5, 2))
    assert found.launches == 3
    for threads in (1, 2):
        out, one = found(f32(5, 2), pieces=3, order=last_first, threads=threads)
        assert np.array_equal(out, 2 * f32(5, 2))
        assert one.tolist() == [1, 1, 1]


def test_it_may_write_over_a_copy_of_its_input():
    op = op_of("f32[n] -> f32[n]", "p")
    text = "void f(float *p, int64_t begin, int64_t end) { for (int64_t i = begin; i < end; ++i) p[i] *= 2; }"
    kernel = attached(op, text, updates=("p",))
    given = f32(9)
    assert np.array_equal(native(op, kernel, given)(given, pieces=3, order=last_first)[0], 2 * f32(9))
    assert np.array_equal(given, f32(9))


def test_args_leave_the_range_out():
    text = f"int f(float *out, int64_t begin, const float *x, int64_t end, int n) {DOUBLED.replace('}', 'return 0; }')}"
    op = rows()
    kernel = attached(op, text, args=lambda x, out, n: (out, x, n))
    assert np.array_equal(native(op, kernel, f32(4, 2))(f32(4, 2), pieces=3)[0], 2 * f32(4, 2))
    told = r"args= of op\[g\] gives 2 arguments, and f takes 3 beside begin and end"
    with pytest.raises(SignatureError, match=told):
        called(op, attached(op, text, name="g", entry="f", args=lambda x, out: (out, x)), f32(4, 2))


def test_what_an_item_moves_tells_the_runtime_whether_threads_are_worth_it():
    op = rows()
    kernel = attached(op, f"void f({TAKES}) {DOUBLED}")
    found = native(op, kernel, f32(4, 256))
    sizes = found._bind([f32(4, 256)])
    assert found._kernel.extent(sizes, 0) == 4
    assert found._kernel.item_bytes(sizes, 0) == 2 * 4 * 256 + 1


@pytest.mark.parametrize(
    ("launch", "told"),
    [
        (None, "begin and end go over the first dim of the first output, and out has none; say with launch= how far"),
        ((1, 2), "launch= of op[f] gives (1, 2) for how far begin and end go; give the name of a size, or a function"),
        (lambda n: 1.5, "launch= of op[f] gives 1.5 for how far begin and end go"),
        (lambda n: -1, "launch= of op[f] gives -1 for how far begin and end go"),
        (lambda n: max(n, 1), "launch= of op[f] cannot be followed where sizes are names"),
    ],
)
def test_how_far_it_goes_must_be_known(launch, told):
    op = op_of("f32[n] -> f32")
    text = "void f(const float *x, float *out, int64_t begin, int64_t end) {}"
    with pytest.raises(SignatureError) as error:
        called(op, attached(op, text, launch=launch), f32(3))
    assert told in str(error.value)
