"""Arrays on their way to another process: one file each, strings as JSON."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import UnsupportedError

Arrays = Mapping[str, np.ndarray]
_STRINGS = "strings"


def write_arrays(arrays: Arrays, folder: Path) -> list[dict[str, Any]]:
    """Write arrays into a folder; return records for `read_arrays`. UnsupportedError for a dtype that noyau lacks."""
    return [_write(name, array, folder / f"{number}.bin") for number, (name, array) in enumerate(arrays.items())]


def read_arrays(records: Iterable[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """The arrays that `write_arrays` wrote, by name."""
    return {each["name"]: _read(each) for each in records}


def _write(name: str, array: np.ndarray, path: Path) -> dict[str, Any]:
    if is_text(array):
        path.write_text(json.dumps([str(each) for each in array.reshape(-1)]), "ascii")
        return {"name": name, "dtype": _STRINGS, "shape": list(array.shape), "path": str(path)}
    dtype = from_numpy(array.dtype)
    if dtype is None:
        raise UnsupportedError(f"the input {name!r} holds {array.dtype}, which cannot go to another process")
    np.ascontiguousarray(array).reshape(-1).view(np.uint8).tofile(path)
    return {"name": name, "dtype": dtype.value, "shape": list(array.shape), "path": str(path)}


def _read(record: Mapping[str, Any]) -> np.ndarray:
    path = Path(record["path"])
    if record["dtype"] == _STRINGS:
        flat = np.array(json.loads(path.read_text("ascii")), np.object_)
    else:
        flat = np.fromfile(path, np.uint8).view(DType(record["dtype"]).numpy)
    return flat.reshape(record["shape"])


def is_text(array: np.ndarray) -> bool:
    """Whether an array holds strings."""
    return array.dtype.kind in "USO"
