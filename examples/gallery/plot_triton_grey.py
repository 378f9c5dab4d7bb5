"""Session 5: from colours to grey, in two dimensions
===================================================

An image has rows, columns and three colours per pixel; grey is their weighted sum. Programs lie on a grid of two axes,
each with a block of rows and a block of columns, and the mask needs both. The broken twin tests the columns alone, and
writes rows that the image does not have. The image may be a part of a larger one, or transposed: `args=` passes its
strides, so nothing is copied, and the check tries it on strided arrays as well.

Run it: ``python examples/gallery/plot_triton_grey.py`` (needs ``pip install 'noyau-kernels[triton]'``).
"""

from __future__ import annotations

import noyau

try:
    import triton
    import triton.language as tl
except ImportError:
    print("this page needs Triton, which is not installed; run: pip install 'noyau-kernels[triton]'")
    raise SystemExit from None


@noyau.op("f32[rows, columns, 3] -> f32[rows, columns]")
def grey(image):
    return 0.299 * image[:, :, 0] + 0.587 * image[:, :, 1] + 0.114 * image[:, :, 2]


def programs(rows, columns, BLOCK):
    return triton.cdiv(rows, BLOCK), triton.cdiv(columns, BLOCK)


def arguments(image, out, rows, columns):
    return image, out, rows, columns, image.stride(0), image.stride(1), image.stride(2)


# %%
# The kernel
# ----------
# A list of constants is a search space: `noyau.tune` times each on a GPU; a check takes the first.
@grey.kernel(launch=programs, args=arguments, constants={"BLOCK": [16, 32]})
@triton.jit
def by_blocks(image, out, rows, columns, down, along, across, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    pixel = image + row * down + column * along
    red = tl.load(pixel, mask=inside)
    green = tl.load(pixel + across, mask=inside)
    blue = tl.load(pixel + 2 * across, mask=inside)
    tl.store(out + row * columns + column, 0.299 * red + 0.587 * green + 0.114 * blue, mask=inside)


# %%
# The broken twin
# ---------------
@noyau.op("f32[rows, columns, 3] -> f32[rows, columns]", name="grey")
def twin(image):
    return 0.299 * image[:, :, 0] + 0.587 * image[:, :, 1] + 0.114 * image[:, :, 2]


@twin.kernel(launch=programs, args=arguments, constants={"BLOCK": 16})
@triton.jit
def columns_alone(image, out, rows, columns, down, along, across, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = column < columns
    pixel = image + row * down + column * along
    red = tl.load(pixel, mask=inside & (row < rows))
    green = tl.load(pixel + across, mask=inside & (row < rows))
    blue = tl.load(pixel + 2 * across, mask=inside & (row < rows))
    tl.store(out + row * columns + column, 0.299 * red + 0.587 * green + 0.114 * blue, mask=inside)


def main() -> None:
    # %%
    # Right, and named
    # ----------------
    found = noyau.check(grey, generated=False, budget_s=2)
    print(found)
    found.raise_if_bad()
    print(noyau.check(twin, generated=False, budget_s=2))


if __name__ == "__main__":
    main()
