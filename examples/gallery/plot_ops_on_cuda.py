"""Sessions 5 and 7: vector add, square, hypot and a gradient on the GPU
=====================================================================

An op called on tensors of a CUDA device runs there. Its kernels are printed in Triton, built and certified at the first
call with a combination of dtypes and layouts, and launched on the current stream from then on. Without a GPU the same
calls run on the CPU, and the text of the kernels can still be read.

Run it: ``python examples/gallery/plot_ops_on_cuda.py`` (needs torch; on a GPU, Triton, which comes with torch).
"""

from __future__ import annotations

import numpy as np

import noyau
from noyau.errors import NoyauError


# %%
# Three ops
# ---------
# Each has a reference in NumPy, and no kernel by hand.
@noyau.op("float[n], float[n] -> float[n]")
def add(x, y):
    return x + y


@noyau.op("float[n] -> float[n]")
def square(x):
    return x * x


@noyau.op("float[n], float[n] -> float[n]")
def hypot(x, y):
    return np.sqrt(x * x + y * y)


def main() -> None:
    import torch

    # %%
    # On the device of their tensors
    # ------------------------------
    # The first call of a combination builds and certifies; later ones only launch.
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"on {torch.cuda.get_device_name()}" if device == "cuda" else "there is no CUDA device here: on the CPU")
    noise = torch.Generator().manual_seed(0)
    x, y = (torch.randn(100_003, generator=noise).to(device) for _ in range(2))
    for op, given, want in ((add, (x, y), x + y), (square, (x,), x * x), (hypot, (x, y), torch.hypot(x, y))):
        made = op(*given)
        assert made.device == x.device
        assert torch.allclose(made, want, rtol=1e-6)
        explained = op.explain(*given)
        print(f"{op.name} ran {explained.kernel}: {explained.why}")

    # %%
    # The kernel
    # ----------
    # A program works on a tile of cells; a mask keeps the last tile within bounds. Printing it needs no other package.
    print(next(part for part in hypot.source("triton").split("@triton.jit\n") if part.startswith("def hypot_0")))

    # %%
    # Gradients and compiled models
    # -----------------------------
    # The gradient is derived and fused like the op; torch.compile sees an operator.
    x.requires_grad_()
    hypot(x, y).sum().backward()
    want = x.detach() / torch.hypot(x.detach(), y)
    print("the gradient is within", f"{float((x.grad - want).abs().max()):.1e}")
    assert torch.allclose(x.grad, want, rtol=1e-5, atol=1e-6)
    x.requires_grad_(False)

    # %%
    # A CUDA graph
    # ------------
    # Any call that ran once may be captured. Nothing is built during a capture: a call that needs a build is refused.
    if device == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = hypot(x, y)
        x.mul_(2)
        graph.replay()
        assert torch.allclose(captured, torch.hypot(x, y), rtol=1e-6)
        print("a replayed graph computes from what the tensors hold now")
    else:
        print("without a CUDA device there is no graph to capture")

    # %%
    # The broken twins: tensors on two devices, and an array of the host beside a tensor. torch would report these from
    # within a kernel, or copy silently; noyau refuses them by name.
    for wrong in (y.to("meta"), y.cpu().numpy()):
        try:
            hypot(x, wrong)
        except NoyauError as refused:
            print(refused)
        else:
            raise AssertionError("this should have been refused")


if __name__ == "__main__":
    main()
