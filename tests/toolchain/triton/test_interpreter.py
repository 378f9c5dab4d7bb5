"""Kernels run as Triton's compiler reads them, whatever the release of Triton that interprets them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language import load as fetch
from triton.language.extra import libdevice
from triton.language.extra.cuda import num_warps
from triton.language.extra.cuda.libdevice import finitef
from triton.language.extra.cuda.libdevice import pow as power

from noyau.errors import CheckError, UnsupportedError
from noyau.kernels.call import error_of
from noyau.toolchain.triton import builder, interpreter

pytestmark = pytest.mark.skipif(not triton.knobs.runtime.interpret, reason="Triton compiles here")
X = torch.arange(12.0)
NAN = float("nan")


@pytest.fixture(autouse=True)
def _installed():
    interpreter.install()


def launched(kernel, *args, grid=(1,), like=X, **constants):
    out = torch.full_like(like, -1)
    kernel[grid](like, out, *args, **constants)
    return out.tolist()


@triton.jit
def words(x, o, n, m, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside, third = (at < n and at >= m) or at == 0, at == 3
    tl.store(o + at, fetch(x + at, mask=at < n), mask=inside and not third)


@triton.jit
def chained(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(o + at, min(tl.load(x + at, mask=at < n), 4.0), mask=2 <= at < n != 40)


@triton.jit
def scalars(x, o, eps, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    shift = 0
    for i in range(3):
        shift += i
        at += (i * n).to(tl.int64) * 0
    tl.store(o + at, eps.to(tl.float32) + shift.to(tl.float32), mask=at < n)


@triton.jit
def hyperbolic(x, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, libdevice.tanh(tl.load(x + at, mask=at < n)), mask=at < n)


@triton.jit
def by_names(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    y = tl.load(x + at, mask=at < n)
    tl.store(o + at, tl.where(finitef(y / (y - 3)), power(y, 3.0), -2.0), mask=at < n)


@triton.jit
def unknown(x, o):
    tl.store(o, tl.inline_asm_elementwise("mov $0, $1;", "=r,r", [tl.load(x)], tl.float32, True, 1))


@triton.jit
def of_cuda(x, o):
    tl.extra.cuda.gdc_wait()
    early = tl.extra.cuda.globaltimer()
    tl.store(o, tl.extra.cuda.num_threads() + 1000 * num_warps())
    tl.store(o + 2, tl.extra.cuda.smid() + 7)
    tl.store(o + 1, (tl.extra.cuda.globaltimer() >= early).to(tl.float32))
    tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def of_old_cuda(x, o):
    tl.store(o, tl.extra.cuda.convert_custom_float8_sm80(tl.load(x), tl.float8e4b15))


def test_words_of_cuda_have_plain_values():
    assert launched(of_cuda)[:3] == [4128, 1, 7]
    assert launched(of_cuda, num_warps=8)[:3] == [8256, 1, 7]
    with pytest.raises(UnsupportedError, match=r"^tl\.extra\.cuda\.convert_custom_float8_sm80 cannot be interpreted"):
        launched(of_old_cuda)


def test_and_or_and_not_join_tensors():
    assert launched(words, 6, 2, BLOCK=16) == [0, -1, 2, -1, 4, 5, *[-1] * 6]


def test_chained_comparisons_and_extremes_go_cell_by_cell():
    assert launched(chained, 12, BLOCK=16) == [-1, -1, 2, 3, *[4] * 8]


def test_numbers_have_the_methods_of_tensors():
    assert launched(scalars, 0.5, 12, BLOCK=16) == [3.5] * 12


def test_grids_are_lists_too_and_libdevice_is_there():
    assert launched(hyperbolic, 12, grid=lambda meta: [3], BLOCK=4) == pytest.approx(torch.tanh(X).tolist(), rel=1e-6)
    with pytest.raises(ValueError, match=r"a grid has one to three axes, and this one is \(\)"):
        launched(hyperbolic, 12, grid=(), BLOCK=4)


def test_functions_of_libdevice_go_by_their_own_names():
    assert launched(by_names, 5, BLOCK=16)[:6] == [0, 1, 8, -2, 64, -1]


def test_functions_within_functions_see_what_is_around_them():
    step = tl.constexpr(3)

    @triton.jit
    def within(x, o, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(o + at, tl.load(x + at) + step)

    assert launched(within, BLOCK=8)[:8] == (X + 3)[:8].tolist()


@triton.jit
def rows(x, o, stride, BLOCK: tl.constexpr):
    tiles = tl.make_tensor_descriptor(x, [2, 3], [stride, 1], [2, BLOCK])
    at = tl.arange(0, BLOCK)
    tl.store(o + tl.arange(0, 2)[:, None] * BLOCK + at[None, :], tiles.load([0, 1]))


def test_rows_of_descriptors_begin_at_multiples_of_16_bytes():
    assert launched(rows, 4, BLOCK=4)[:8] == [1, 2, 0, 0, 5, 6, 0, 0]
    with pytest.raises(CheckError, match=r"has the strides \(5, 1\), in cells of 4 bytes: a GPU takes 1 as the last"):
        launched(rows, 5, BLOCK=4)


@triton.jit
def product(x, o):
    at = tl.arange(0, 16)[:, None] * 0 + tl.arange(0, 16)[None, :] * 0
    tl.store(o + at, tl.dot(tl.load(x + at), tl.load(x + at)))


def test_the_word_that_cannot_be_interpreted_is_named(monkeypatch):
    monkeypatch.setattr(builder.interpreter.InterpreterBuilder, "create_dot", lambda *rest: np.zeros(-1))
    with pytest.raises(ValueError, match="negative dimensions") as fault:
        launched(product)
    assert str(error_of("k", fault.value)).startswith("without a GPU tl.dot raised ValueError: negative dimensions")


def test_what_has_no_stand_in_is_no_result():
    with pytest.raises(NotImplementedError):
        launched(unknown)
    with pytest.raises(UnsupportedError, match=r"libdevice\.unheard_of cannot be interpreted without a GPU"):
        interpreter.libdevice_function("unheard_of")(1.0)


@triton.jit
def halves(x, o, total, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(o + at, value * value + 1.0)
    tl.atomic_add(total + at * 0, value)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_floats_are_calculated_in(dtype):
    x, total = torch.linspace(-2, 2, 8).to(dtype), torch.zeros(1, dtype=dtype)
    out = torch.empty_like(x)
    halves[(1,)](x, out, total, BLOCK=8)
    assert torch.equal(out, x * x + 1)
    assert total.item() == pytest.approx(0, abs=0.02)


@triton.jit
def blocks(x, o, n, BLOCK: tl.constexpr):
    source = tl.make_block_ptr(x, (n,), (1,), (0,), (BLOCK,), (0,))
    target = tl.make_block_ptr(o, (n,), (1,), (0,), (BLOCK,), (0,))
    for _ in range(tl.cdiv(n, BLOCK)):
        tl.store(target, 2 * tl.load(source, boundary_check=(0,), padding_option="zero"), boundary_check=(0,))
        source, target = tl.advance(source, (BLOCK,)), tl.advance(target, (BLOCK,))


def test_block_pointers_are_there_in_releases_that_have_none():
    assert launched(blocks, 10, BLOCK=8) == [*(2 * X[:10]).tolist(), -1, -1]


@triton.jit
def copied(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(o + at, tl.load(x + at, mask=at < n), mask=at < n)


@pytest.mark.parametrize(("dtype", "of"), [(tl.float8e5, torch.float8_e5m2), (tl.float8e4nv, torch.float8_e4m3fn)])
def test_short_floats_of_a_byte_are_loaded_and_stored(dtype, of):
    x = torch.linspace(-2, 2, 8).to(of)
    wide, back = torch.empty(8), torch.empty(8, dtype=torch.int8)
    copied[(1,)](triton.reinterpret(x.view(torch.int8), dtype), wide, 8, BLOCK=8)
    copied[(1,)](wide, triton.reinterpret(back, dtype), 8, BLOCK=8)
    assert torch.equal(wide, x.float())
    assert torch.equal(back, x.view(torch.int8))


@triton.jit
def scaled_product(a, p, b, q, o, KIND: tl.constexpr):
    m, k, s = tl.arange(0, 32), tl.arange(0, 64), tl.arange(0, 2)
    left, right = tl.load(a + m[:, None] * 64 + k[None, :]), tl.load(b + k[:, None] * 32 + m[None, :])
    scales = m[:, None] * 2 + s[None, :]
    product = tl.dot_scaled(left, tl.load(p + scales), KIND, right, tl.load(q + scales), KIND)
    tl.store(o + m[:, None] * 32 + m[None, :], product)


@pytest.mark.parametrize(("kind", "dtype"), [("e5m2", torch.float8_e5m2), ("e4m3", torch.float8_e4m3fn)])
def test_products_of_scaled_short_floats(kind, dtype):
    torch.manual_seed(0)
    a, b = torch.randn(32, 64).to(dtype), torch.randn(64, 32).to(dtype)
    p, q = (torch.randint(125, 129, (32, 2), dtype=torch.uint8) for _ in "ab")
    out = torch.empty(32, 32)
    scaled_product[(1,)](a, p, b, q, out, kind)
    wide = [torch.exp2(each.float() - 127).repeat_interleave(32, 1) for each in (p, q)]
    assert torch.equal(out, (a.float() * wide[0]) @ (b.float() * wide[1].T))


@triton.jit
def chosen(x, o, mask, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(o + at, tl.load(x + at, mask=tl.load(mask + at), other=0))


def test_a_mask_of_integers_chooses_lanes():
    mask = torch.tensor([1, 0, 2, 0], dtype=torch.int32)
    assert launched(chosen, mask, BLOCK=4)[:4] == [0, 0, 2, 0]
