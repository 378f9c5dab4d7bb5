"""Session 7: a kernel in CUDA C++ in one file, without a build system
====================================================================

``torch.utils.cpp_extension.load_inline`` takes a kernel, and a C++ function that checks tensors, allocates the result
and launches. It needs nvcc, a C++ compiler and ninja, and takes most of a minute. Here you write only the kernel. The
signature of the op gives its parameters and results, and ``launch=`` its grid. NVRTC builds the text in a fraction of a
second, and the cache keeps it. The kernel is called on tensors, arrays of CuPy and of Numba, on the current stream, in
``torch.compile``, in CUDA graphs, and with the gradient that is derived from the reference.

It runs once ``noyau.check`` has found it right, against the reference in float64. The broken twin rounds the number of
blocks down, so that no block writes the last cells.

Run it: ``python examples/gallery/plot_load_inline.py`` (needs ``pip install 'noyau-kernels[check-c]'`` and a C
compiler; on a GPU ``'noyau-kernels[cuda,torch]'``).
"""

from __future__ import annotations

import importlib.util

import noyau

BLOCK = 256
TEXT = """
__global__ void square_matrix(const float *matrix, float *result, int width, int height) {
    long long cell = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (cell < (long long)width * height) result[cell] = matrix[cell] * matrix[cell];
}
"""


@noyau.op("f32[height, width] -> result: f32[height, width]")
def square_matrix(matrix):
    return matrix * matrix


def enough(width, height):
    return (width * height + BLOCK - 1) // BLOCK, BLOCK


def too_few(width, height):
    return width * height // BLOCK, BLOCK


square_matrix.kernel(TEXT, language="cuda", launch=enough)


# %%
# The broken twin
# ---------------
def twin() -> noyau.Op:
    broken = noyau.op("f32[height, width] -> result: f32[height, width]", name="square_matrix")(square_matrix.reference)
    broken.kernel(TEXT, language="cuda", name="rounded_down", launch=too_few)
    return broken


def main() -> None:
    print(noyau.check(square_matrix, generated=False, budget_s=0.5))
    print(noyau.check(twin(), generated=False, budget_s=0.5))

    # %%
    # On a GPU, with its gradient
    # ---------------------------
    torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
    if torch is None or not torch.cuda.is_available():
        print("there is no GPU: the kernel was compiled for the CPU, and watched there")
        return
    matrix = torch.randn(1000, 1000, device="cuda", requires_grad=True)
    square_matrix(matrix).sum().backward()
    print(square_matrix.explain(matrix.detach()))
    print("its gradient is right:", torch.equal(matrix.grad, 2 * matrix.detach()))
    print(noyau.bench(square_matrix, matrix.detach(), budget_s=0.5))


if __name__ == "__main__":
    main()
