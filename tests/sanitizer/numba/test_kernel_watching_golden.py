"""The kernels that noyau prints in Numba, watched: nothing is found in any of them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from noyau.sanitizer.numba.kernel import Watching, plainly
from noyau.sanitizer.recording_array import Recorder

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "numba"
BUFFER = re.compile(r"^    # (\w+): (\w+)\[([^\]]*)\], (input|output)", re.MULTILINE)
SIZES = {"rows": 5, "n": 7, "a": 4, "b": 3, "c": 2, "s": 3, "words": 6}
DTYPES = {"f32": "f4", "f64": "f8", "i32": "i4", "i64": "i8", "bool": "?", "f16": "u2", "bf16": "u2"}


def made(text, name):
    """Arrays for the buffers that a text lists, and which of them are outputs."""
    arrays, outputs, random = [], {}, np.random.default_rng(0)
    for buffer in BUFFER.finditer(text[text.index(f"\ndef {name}(") :]):
        shape = [int(eval(dim, {}, SIZES)) for dim in buffer[3].split(",") if dim.strip()]
        arrays.append(random.integers(0, 3, shape).astype(DTYPES[buffer[2]]))
        if buffer[4] == "output":
            outputs[id(arrays[-1])] = buffer[1]
    return arrays, outputs


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_nothing_is_found(path):
    text = path.read_text("ascii")
    name = re.search(r"# the kernel (\w+)", text)[1]
    arrays, outputs = made(text, name)
    recorder = Recorder()
    watching = Watching(plainly(text)[name], recorder, outputs)
    assert watching(*arrays) == 0
    found, _ = watching.findings("op", name, "")
    assert found + watching.unwritten("op", name, "") == []
    assert recorder.shadow.accesses > 0
