"""Session 5: vector add by blocks
================================

The sum of two vectors moves three cells for each cell of the result, so only memory limits its speed. A program adds a
block; a tuner of Triton's own may choose the size of the block, and heuristics leave the mask out if every block is
full. The broken twin always leaves it out. On a GPU the clock separates the copies to and from it from the sum: the
copies take far longer, so a single kernel is seldom worth the transfer.

Run it: ``python examples/gallery/plot_triton_vector_add.py`` (needs ``pip install 'noyau-kernels[triton]'``; the clock
needs a GPU).
"""

from __future__ import annotations

import time

import numpy as np

import noyau

try:
    import torch
    import triton
    import triton.language as tl
except ImportError:
    print("this page needs Triton, which is not installed; run: pip install 'noyau-kernels[triton]'")
    raise SystemExit from None


@noyau.op("float[n], float[n] -> float[n]")
def add(x, y):
    return x + y


def programs(n, BLOCK):
    return triton.cdiv(n, BLOCK)


# %%
# The kernels
# -----------
@add.kernel(launch=programs, constants={"BLOCK": [512, 1024]}, options={"num_warps": 8})
@triton.jit
def by_blocks(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@add.kernel(launch=programs)
@triton.autotune(configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 1024}, num_warps=8)], key=["n"])
@triton.heuristics({"FULL": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def tuned(x, y, out, n, BLOCK: tl.constexpr, FULL: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if FULL:
        tl.store(out + at, tl.load(x + at) + tl.load(y + at))
    else:
        inside = at < n
        tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


# %%
# The broken twin
# ---------------
@noyau.op("float[n], float[n] -> float[n]", name="add")
def twin(x, y):
    return x + y


@twin.kernel(launch=programs, constants={"BLOCK": 256})
@triton.jit
def no_mask(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n))


def main() -> None:
    # %%
    # Right at every size
    # -------------------
    # 0, 1, primes, the sizes of blocks and their neighbours; each of the tuner's configurations in turn.
    found = noyau.check(add, generated=False, budget_s=3)
    print(found)
    found.raise_if_bad()
    print(noyau.check(twin, generated=False, budget_s=2))
    if not torch.cuda.is_available():
        print("there is no GPU here, so the clock is left out")
        return
    # %%
    # The clock
    # ---------
    x, y = (torch.from_numpy(np.random.default_rng(seed).standard_normal(2**25 + 3, np.float32)) for seed in (0, 1))
    begin_s = time.perf_counter()
    there = [x.cuda(), y.cuda()]
    torch.cuda.synchronize()
    print(f"the copies there: {time.perf_counter() - begin_s:.4f} s")
    print(noyau.bench(add, there, peers={"torch": torch.add}))


if __name__ == "__main__":
    main()
