"""Session 5: a copy in Triton, and its two planted bugs
======================================================

This is the smallest kernel for a GPU: programs with a block of cells each, and a mask for the last block, which is
seldom full. It can be wrong in two ways that no test at n = 1024 shows: too few programs, so that the tail is never
written; and a mask that is off by one, so that one cell after the array is written. A check needs no GPU for either:
without one, the kernel runs in Triton's interpreter, in a process of its own, on outputs that are poisoned and guarded.

Run it: ``python examples/gallery/plot_triton_copy.py`` (needs ``pip install 'noyau-kernels[triton]'``).
"""

from __future__ import annotations

import noyau

try:
    import triton
    import triton.language as tl
except ImportError:
    print("this page needs Triton, which is not installed; run: pip install 'noyau-kernels[triton]'")
    raise SystemExit from None


@noyau.op("f32[n] -> f32[n]")
def copy(x):
    return x + 0


# %%
# The kernel with both bugs
# -------------------------
# `launch=` gives the number of programs; its parameters are sizes, constants, arrays and the `device`, by name. The
# kernel's own parameters are matched by name, too. Both bugs are in these lines.
@copy.kernel(launch=lambda n, BLOCK: (n // BLOCK,), constants={"BLOCK": 256})
@triton.jit
def handed_out(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at <= n
    tl.store(out + at, tl.load(x + at, mask=inside), mask=inside)


# %%
# The first bug mended
# --------------------
# There are as many programs as blocks, and the last block counts though it is not full. The mask is still wrong.
@copy.kernel(launch=lambda n, BLOCK: (triton.cdiv(n, BLOCK),), constants={"BLOCK": 256})
@triton.jit
def tail_mended(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at <= n
    tl.store(out + at, tl.load(x + at, mask=inside), mask=inside)


# %%
# Both mended
# -----------
@copy.kernel(launch=lambda n, BLOCK: (triton.cdiv(n, BLOCK),), constants={"BLOCK": 256})
@triton.jit
def mended(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside), mask=inside)


def main() -> None:
    # %%
    # The report of the check
    # -----------------------
    # It shows each bug at the smallest sizes that reveal it, with a remedy.
    print(noyau.check(copy, generated=False, budget_s=2))


if __name__ == "__main__":
    main()
