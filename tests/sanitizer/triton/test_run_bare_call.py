from __future__ import annotations

import textwrap

import pytest

from noyau.jobs.check.script_run import check_script

SCRIPT = """
    import torch
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor

    @triton.jit
    def move(source, target, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(target + at, tl.load(source + at, mask=at < n), mask=at < n)

    @triton.jit
    def tiles(source, target, BLOCK: tl.constexpr):
        row = tl.program_id(0) * BLOCK
        target.store([row, 0], source.load([row, 0]))

    @triton.jit
    def rows(x, stride, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(x + tl.program_id(0) * stride + at, 1.0, mask=at < n)

    whole = torch.arange(65, dtype=torch.float32)
    move[(2,)](whole[:-1], whole[1:], 64, BLOCK=32)  # views of one storage meet
    a, b = torch.rand(16, 16), torch.zeros(16, 16)
    tiles[(2,)](TensorDescriptor.from_tensor(a, [8, 16]), TensorDescriptor.from_tensor(b, [8, 16]), BLOCK=8)
    assert torch.equal(a, b)
    wide = torch.zeros(4, 10)
    rows[(4,)](wide[:, 2:6], 10, 4, BLOCK=4)
    assert wide.sum() == 16 and wide[:, 2:6].sum() == 16
    rows[(4,)](wide[:, 2:6], 10, 8, BLOCK=8)  # past the last row alone
    move[(1,)](torch.zeros(0), torch.zeros(0), 0, BLOCK=32)
    bits = torch.zeros(8, dtype=torch.int32)
    move[(1,)](torch.ones(8), triton.reinterpret(bits, tl.float32), 8, BLOCK=8)
    assert bits[0] == 0x3F800000
"""


BARE = """
    import numpy as np
    import torch
    import triton
    import triton.language as tl
    import noyau
    from noyau.errors import SignatureError

    @triton.jit
    def double(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

    x, out = torch.rand(50, device="cuda"), torch.zeros(50, device="cuda")
    assert noyau.check(double, (x, out, 50, 32), launch=lambda meta: (2,), reference=lambda x: 2 * x).ok
    noyau.check(double, (x, out, 50, 32), launch=1, reference=lambda x: 2 * x)
    assert not out.any()
    try:
        noyau.check(double, (x, out, 50, 32))
    except SignatureError as error:
        assert str(error) == "double needs a grid: noyau.check(double, args, launch=(programs,))"
    else:
        raise AssertionError("it needs none")
"""


OUTSIDE = """
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def both(x, o, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(o + at, tl.load(x + at))

    @triton.jit
    def axis(x, n, m, BLOCK: tl.constexpr):
        row, column = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
        tl.load(x + row * m + column, mask=column < m)

    @triton.jit
    def packed(dy, n, BLOCK: tl.constexpr):
        tl.load(dy + tl.arange(0, BLOCK), mask=tl.arange(0, BLOCK) < n)

    both[(2,)](torch.ones(5, device="cuda"), torch.empty(5, device="cuda"), BLOCK=4)
    axis[(1,)](torch.ones(5, 7, device="cuda"), 5, 7, BLOCK=8)
    packed[(1,)](torch.ones((), device="cuda").expand(4, 8), 32, BLOCK=32)
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """All of them in one process, which imports Triton once."""
    path = tmp_path_factory.mktemp("bare") / "script.py"
    path.write_text("".join(map(textwrap.dedent, (SCRIPT, BARE, OUTSIDE))), encoding="utf-8")
    found = check_script(path)
    assert found.fault == ""
    return found


def of_kernels(found, *names):
    return [each for each in found.findings if each.kernel in names]


def test_views_strides_and_descriptors(checked):
    seen = of_kernels(checked, "move", "tiles", "rows")
    assert [(each.kernel, each.kind) for each in seen] == [("move", "race"), ("rows", "out-of-bounds")]
    meet, past = seen
    assert meet.message.startswith("program 1 reads source[32], written by program 0 on the same line")
    assert past.message == "program 3 writes x at 34, which has 34 cells (4 times)"
    assert checked.advice == ()  # a launch on the host's memory is done when the host reads its results


def test_kernels_that_a_script_has_checked(checked):
    (wrong,) = of_kernels(checked, "double")
    assert (wrong.kind, wrong.cell) == ("wrong-value", (32,))
    (double,) = (each for each in checked.kernels if each.name == "double")
    assert double.calls == 2  # its launches are not watched once more


def test_accesses_outside_are_told_with_what_mends_each(checked):
    found = [each for each in of_kernels(checked, "both", "axis", "packed") if each.severity == "error"]
    assert [each.message.partition(" at ")[0] for each in found] == [
        "program 1 reads x",
        "program 1 writes o",
        "program 0 reads x",
        "program 0 reads dy",
    ]
    assert found[1].mend == "give the access a mask: mask=offsets < n"
    assert found[2].mend.startswith("the mask forgets axis 0 of its block")
    assert found[3].mend == "dy is expanded (strides 0, 0): make it contiguous, or index by its strides"
