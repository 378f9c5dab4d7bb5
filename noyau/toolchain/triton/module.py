"""A text of language `triton` as Python functions: on a CUDA device, or in Triton's interpreter, which needs none.

Triton interprets where TRITON_INTERPRET=1 is set before it is imported."""

from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import dependency
from noyau.toolchain.cache import file_of
from noyau.workers.import_path import run_text

with dependency("triton, or torch,", "noyau-kernels[triton]"):
    import torch
    import triton


def begin() -> None:
    """Initialise what Triton computes once in a process, in a second or two: its own digest, its driver interface."""
    from triton.runtime import cache, driver

    driver.active.get_current_target()
    cache.triton_key()


def interprets() -> bool:
    """Whether Triton interprets kernels in this process."""
    return bool(triton.knobs.runtime.interpret)


def array_of(tensor: Any, dtype: DType) -> np.ndarray:
    """A tensor as an array of a dtype."""
    host = tensor.detach().cpu()
    array: np.ndarray = (host.view(torch.int16) if dtype is DType.BF16 else host).numpy()
    return array.view(dtype.numpy)


def load(text: str) -> dict[str, Any]:
    """The globals of a text; Triton reads its source from a cached file. OutputError where that cannot be written."""
    path = file_of(text, triton.__version__)
    names = run_text(text, path, f"noyau_triton_{path.parent.name}")
    if interprets():
        from noyau.toolchain.triton import interpreter

        interpreter.install()
    return names
