"""A model's bytes as a file beside links to its external data, for a runtime that looks for it nowhere else."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from noyau.errors import OutputError

_MARK = b"location"  # the key under which a tensor names its file


@contextlib.contextmanager
def beside_its_data(content: bytes, folder: Path) -> Iterator[Path | bytes]:
    """The path of a file with these bytes, in a temporary folder with links to what they name of `folder`; both are
    gone afterwards. The bytes themselves where they name no data. OutputError where there is no room for the file."""
    if _MARK not in content:
        yield content
        return
    try:
        with tempfile.TemporaryDirectory(prefix="noyau-") as name:
            for entry in os.scandir(folder):
                if os.fsencode(entry.name) in content:
                    os.symlink(os.path.abspath(entry.path), os.path.join(name, entry.name))
            path = Path(name, f"{secrets.token_hex(8)}.onnx")
            path.write_bytes(content)
            yield path
    except OSError as error:
        raise OutputError(f"a copy of the model for onnxruntime cannot be written: {error.strerror}") from error
