"""What shadow_speed.py runs in Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_blocks(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)
