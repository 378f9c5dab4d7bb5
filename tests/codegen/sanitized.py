"""Runs kernels of one library on pickled inputs; started under a sanitizer, which ends the process at its first report.

`python sanitized.py LIBRARY JOBS`: a job is the name of a kernel and its inputs. Support for tests, not a test."""

from __future__ import annotations

import ctypes
import pickle
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np

from noyau.errors import InputError
from noyau.toolchain.c import library as c_library
from noyau.toolchain.c.library import Native

ABSURD = (0, 1, 3, 2**31 - 1, 2**31, 2**32, 2**53, 2**60, 2**62, 2**63 - 1)
ROUNDS = 40


def main(library: str, jobs: str) -> None:
    c_library._allocate_aligned = lambda size: np.empty(size, np.uint8)  # exactly as long as was asked for
    kernels: dict[str, Native] = {}
    for name, arrays in pickle.loads(Path(jobs).read_bytes()):
        print(name, [array.shape for array in arrays], file=sys.stderr, flush=True)
        if name not in kernels:
            kernels[name] = Native(Path(library), f"{name}_kernel")
            ask(kernels[name])
        for pieces in (1, 3):
            with suppress(InputError):  # a table may be too small for what is looked up in it
                kernels[name](*(np.array(array, order="C") for array in arrays), pieces=pieces)
    print("done")


def ask(kernel: Native) -> None:
    """What a runtime asks before it runs, of sizes that no array can have."""
    choices, asked = Random(0), kernel._kernel
    for _ in range(ROUNDS):
        sizes = (ctypes.c_int64 * max(1, asked.sizes))(*(choices.choice(ABSURD) for _ in range(asked.sizes)))
        for output in range(kernel.outputs):
            asked.shape(sizes, output, (ctypes.c_int64 * 8)())
        for launch in range(kernel.launches):
            asked.extent(sizes, launch)
            asked.item_bytes(sizes, launch)
        for number in range(kernel.scratch):
            asked.scratch_bytes(sizes, number)
        shapes = [(ctypes.c_int64 * 8)(*(choices.choice(ABSURD) for _ in range(8))) for _ in range(kernel.inputs)]
        pointers = [ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)) for shape in shapes]
        asked.bind((ctypes.POINTER(ctypes.c_int64) * max(1, len(pointers)))(*pointers), sizes)


if __name__ == "__main__":
    main(*sys.argv[1:])
