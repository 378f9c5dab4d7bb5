"""Session 5: one softmax in Numba-CUDA, CUDA C++ and Triton, as noyau prints it, and without its barriers
==========================================================================================================

A block of 256 threads computes a long row of a softmax. Each thread reads its part of the cells; then the block merges
256 maxima, and 256 sums, in shared memory. noyau prints this kernel from two lines of NumPy, for Numba-CUDA and in CUDA
C++; Triton has words for all of it. In CUDA C++ a thread loads 16 bytes at once and keeps its cells in registers. A row
too long for the registers of one block has a cluster of blocks, which exchange states through distributed shared
memory. Both are checked without a GPU. The broken twins have no barriers, like many a first version.

Run it: ``python examples/gallery/plot_generated_cuda.py`` (needs ``pip install 'noyau-kernels[check-c,numba]'`` and
gcc).
"""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path

import numpy as np

import noyau


@noyau.op("f32[rows, n] -> out: f32[rows, n]")
def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# %%
# Numba-CUDA
# ----------
# A block computes each row. Below the kernel stands the host function, which takes arrays of the device (Numba, CuPy,
# torch). The text is a Python file that needs only Numba-CUDA.
python = softmax.source("numba_cuda")
print(python[python.index("@cuda.jit") :])

# %%
# Its broken twin
# ---------------
# Each barrier is now ``pass``: a thread merges a state that another warp has not stored yet. A GPU may give the right
# numbers for years. The kernel is attached to the op like one written by hand.
folder = Path(tempfile.mkdtemp(prefix="noyau-cuda-"))
(folder / "without_barriers.py").write_text(python.replace("cuda.syncthreads()", "pass"))
broken = runpy.run_path(str(folder / "without_barriers.py"))["softmax_0"]


def arguments(x, out, rows, n):
    return x, out, rows, n


softmax.kernel(broken, name="python_without_barriers", launch=lambda rows: (rows, 256), args=arguments)

# %%
# Triton
# ------
# A program computes a row, and its words act on rows: no thread, no barrier.
triton = softmax.source("triton")
print(triton[triton.index("@triton.jit") :])

# %%
# CUDA C++
# --------
# There is a kernel for each range of row lengths. Rows of up to 512 cells have a warp each, eight to a block. Longer
# rows have a block, then a cluster of blocks; the longest have a block that reads them twice. The cells before the
# first multiple of 16 bytes, and after the last one, are handled apart. After the kernels stands the host function that
# launches one of them. The text compiles alone, with nvcc or NVRTC. Here are the merge of a block and the work of a
# block on a row:
text = softmax.source("cuda")
print(text[text.index("template <int LANES") :].partition("\n}\n")[0] + "\n}\n")
print(text[text.index("struct noyau_max_f32 {") :].partition("\n};\n")[0] + "\n};\n")
print(text[text.index('extern "C" __global__ void __launch_bounds__(256) softmax_1(') :].partition("\n}\n")[0] + "\n}")

# %%
# A host program copies the rows to the device, calls that function, and copies the results back. noyau runs it as a GPU
# would, thread by thread.
HOST = """
extern "C" void on_device(const float *x, float *out, int64_t rows, int64_t n)
{
    float *from, *to;
    cudaMalloc(&from, rows * n * sizeof(float));
    cudaMalloc(&to, rows * n * sizeof(float));
    cudaMemcpy(from, x, rows * n * sizeof(float), cudaMemcpyHostToDevice);
    softmax(from, to, rows, n, 0);
    cudaMemcpy(out, to, rows * n * sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(from);
    cudaFree(to);
}
"""
(folder / "printed.cu").write_text(text + HOST)
softmax.kernel(folder / "printed.cu", name="printed", entry="on_device")

# %%
# Its broken twin has no ``__syncthreads()``.
(folder / "without_barriers.cu").write_text((text + HOST).replace("__syncthreads();", ";"))
softmax.kernel(folder / "without_barriers.cu", name="without_barriers", entry="on_device")

# %%
# The check
# ---------
# Each kernel runs without a GPU, thread by thread; every access is watched, and the results are compared with NumPy in
# float64. For the broken twins the report names the lines, the cell and the two threads.
print(noyau.check(softmax, sizes={"rows": 3, "n": 1500}, generated=("numba_cuda",), budget_s=2))
