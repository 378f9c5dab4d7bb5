"""Session 5: a softmax in CUDA C++, as noyau prints it, and without its barriers
===============================================================================

A long row of a softmax has a block of 256 threads. Each takes in every 256th cell; then the block merges 256 maxima,
and 256 sums, in shared memory. noyau prints this kernel from two lines of NumPy, and checks it without a GPU: as text
that a program of the host launches. The broken twin has no barriers, like many a first version.

Run it: ``python examples/gallery/plot_generated_cuda.py`` (needs ``pip install 'noyau-kernels[check-c]'`` and gcc).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import noyau


@noyau.op("f32[rows, n] -> out: f32[rows, n]")
def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# %%
# The text
# --------
# Two kernels: rows of up to 1024 cells have a warp each, eight to a block; a longer row has a block. Behind them stands
# the function of the host that launches one of the two. The whole compiles alone, with nvcc or NVRTC.
text = softmax.source("cuda")
print(text[text.index("template <int LANES") :])

# %%
# The check
# ---------
# A program of the host copies the rows to the device, calls that function, and copies the results back. noyau runs it
# as a GPU would, thread by thread, sees each access, and compares the results with NumPy in float64.
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
folder = Path(tempfile.mkdtemp(prefix="noyau-cuda-"))
(folder / "printed.cu").write_text(text + HOST)
softmax.kernel(folder / "printed.cu", name="printed", entry="on_device")

# %%
# The broken twin
# ---------------
# Without `__syncthreads()` a thread merges states that another warp has not stored yet. A GPU may give the right
# numbers for years. The check names the lines, the cell and the two threads.
(folder / "without_barriers.cu").write_text((text + HOST).replace("__syncthreads();", ";"))
softmax.kernel(folder / "without_barriers.cu", name="without_barriers", entry="on_device")

print(noyau.check(softmax, sizes={"rows": 3, "n": 1500}, generated=False))
