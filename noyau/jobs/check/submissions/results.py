"""Arrays on their way from a process that is not trusted: a line of JSON that describes them, then their bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError

Array = np.ndarray
_DTYPES = {dtype.numpy.name: dtype for dtype in DType if dtype is not DType.OTHER}


def write_results(path: Path, arrays: Sequence[Array], facts: Mapping[str, Any]) -> None:
    """Write arrays, and facts on them. UnsupportedError for a dtype that noyau does not have."""
    strange = next((each.dtype for each in arrays if each.dtype.name not in _DTYPES), None)
    if strange is not None:
        raise UnsupportedError(f"values of {strange} are not compared; there are {', '.join(_DTYPES)}")
    shapes = [{"dtype": each.dtype.name, "shape": list(each.shape)} for each in arrays]
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(json.dumps({"arrays": shapes, "facts": dict(facts)}).encode() + b"\n")
        for each in arrays:
            file.write(np.ascontiguousarray(each).tobytes())
    partial.replace(path)  # whole, or not there


def read_results(path: Path) -> tuple[list[Array], dict[str, Any]] | None:
    """The arrays, and the facts; None where they are not there, or are not what they say."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.readline(1 << 20))
            arrays = []
            for each in header["arrays"]:
                dtype, shape = _DTYPES[each["dtype"]], [int(extent) for extent in each["shape"]]
                if min(shape, default=0) < 0:
                    return None
                size = math.prod(shape) * dtype.bytes
                content = file.read(size) if 0 <= size <= path.stat().st_size else b""
                arrays.append(np.frombuffer(content, dtype.numpy).reshape(shape))
            return arrays, dict(header["facts"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
