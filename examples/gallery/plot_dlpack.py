"""Session 7: DLPack round trips
=============================

Arrays of other packages go through an op without a copy: the kernel reads their memory in place, and the results are
arrays of the same package, on the memory that the kernel wrote.

Run it: ``python examples/gallery/plot_dlpack.py`` (torch is used where it is installed).
"""

from __future__ import annotations

import array

import numpy as np

import noyau
from noyau.errors import UnsupportedError
from noyau.hosts.numpy.dlpack import as_array, return_like


@noyau.op("float[m, n] -> float[m, n]")
def centred(x):
    """Columns around 0."""
    return x - x.mean(0)


def main() -> None:
    # %%
    # The same memory
    # ---------------
    # An object with DLPack, `__array_interface__` or Python's buffers is viewed, not copied: both sides see a change.
    listed = array.array("d", range(6))
    seen = as_array(listed)
    seen[0] = 10
    print(listed[0], seen.flags.owndata)
    assert listed[0] == 10

    # %%
    # Read-only memory stays read-only here too. Memory of another device, and an object that is no array, are refused
    # with a remedy.
    assert not as_array(b"bytes").flags.writeable
    try:
        as_array([1, 2, 3], "x")
    except UnsupportedError as refused:
        print(refused)

    assert np.allclose(centred(np.eye(3)).sum(0), 0)

    # %%
    # torch in, torch out
    # -------------------
    # Strides stay: a transposed tensor is a transposed array. NumPy has no dtype for bfloat16, so it becomes that of
    # ml_dtypes.
    try:
        import torch
    except ImportError:
        print("torch is not installed: that was all")
        return

    x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    there = as_array(x.T)
    print(there.strides, there.ctypes.data == x.data_ptr())
    assert there.ctypes.data == x.data_ptr()

    y = centred(x.T)
    print(type(y).__name__, y.shape)
    assert torch.equal(y, x.T - x.T.mean(0))

    short = as_array(x.to(torch.bfloat16))
    print(short.dtype, return_like(short, x).dtype)

    # %%
    # The broken twin: torch refuses `numpy()` of a tensor that requires a gradient. noyau refuses its memory as an
    # array too, because the gradient would be lost silently. The op itself takes the tensor, and records its results
    # for the gradient.
    x.requires_grad_()
    try:
        as_array(x, "x")
    except UnsupportedError as refused:
        print(refused)
    else:
        raise AssertionError("the gradient was lost")
    (given_to_x,) = torch.autograd.grad(centred(x)[0, 0], x)
    print(given_to_x[:, 0])
    assert torch.allclose(given_to_x[:, 0], torch.tensor([2 / 3, -1 / 3, -1 / 3]))


if __name__ == "__main__":
    main()
