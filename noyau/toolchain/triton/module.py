"""A text of language `triton` as Python functions: on a CUDA device, or in Triton's interpreter, which needs none.

Triton interprets where TRITON_INTERPRET=1 is set before it is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import MissingExtraError, UnsupportedError
from noyau.toolchain.libdevice import function_of
from noyau.toolchain.python_modules import file_of

try:
    import torch
    import triton
except ImportError as error:
    raise MissingExtraError("triton, or torch, is not installed; run: pip install 'noyau[triton]'") from error


def begin() -> None:
    """Find out what Triton asks once in a process, a second or two of it: its own digest, and what calls the driver."""
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
    """The names that a text defines. Triton reads the functions again from a file, which stays in the cache.
    OutputError where that cannot be written."""
    path = file_of(text, triton.__version__)
    module = ModuleType(f"noyau_triton_{path.parent.name}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(text, str(path), "exec"), module.__dict__)  # noqa: S102  made by codegen/triton/printer.py
    if interprets():
        _keep_bools()
        if hasattr(module, "libdevice"):
            module.__dict__["libdevice"] = Interpreted()
    return module.__dict__


@cache
def _keep_bools() -> None:
    """The interpreter of triton 3.9 makes integers of a bool that is made a block, and then takes it for no mask."""
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def create_splat(self: Any, kind: Any, arg: Any) -> Any:
        data = np.full(kind.shape, arg.data.item() if isinstance(arg.data, np.ndarray) else arg.data, arg.data.dtype)
        return TensorHandle(data, kind.scalar)

    InterpreterBuilder.create_splat = create_splat


class Interpreted:
    """CUDA's libdevice where Triton interprets, which has nothing for it: functions on NumPy, rounded once."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = function_of(name)
        if function is None:
            raise UnsupportedError(
                f"libdevice.{name} cannot be interpreted without a GPU; noyau knows no such function"
            )

        def call(*operands: Any, **options: Any) -> Any:
            from triton.runtime.interpreter import TensorHandle

            language = triton.language
            values = [operand.handle.data if hasattr(operand, "handle") else operand for operand in operands]
            with np.errstate(all="ignore"):
                result = np.asarray(function(*values))
            floats = [value.dtype for value in values if isinstance(value, np.ndarray) and value.dtype.kind == "f"]
            if result.dtype == np.float64 and floats:  # the longer arithmetic of the functions
                result = result.astype(max(floats))
            dtype = language.int1 if result.dtype.kind == "b" else getattr(language, result.dtype.name)
            blocks = [operand for operand in operands if hasattr(operand, "handle") and operand.type.is_block()]
            kind = language.block_type(dtype, [*result.shape]) if blocks else dtype
            return language.core.tensor(TensorHandle(result if blocks else np.atleast_1d(result), dtype), kind)

        return call
