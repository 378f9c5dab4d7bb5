from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from noyau.jobs.check.submissions.process import read_results, write_results


def test_arrays_come_back_as_they_were(tmp_path):
    arrays = [np.arange(6, dtype=np.int16).reshape(2, 3), np.array(1.5, np.float32), np.zeros((0, 4))]
    write_results(tmp_path / "out", arrays, {"count": 3})
    read = read_results(tmp_path / "out")
    assert read is not None
    assert read[1] == {"count": 3}
    assert [(a.dtype, a.shape, a.tolist()) for a in read[0]] == [(a.dtype, a.shape, a.tolist()) for a in arrays]


def test_other_dtypes_are_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="values of complex64 are not compared"):
        write_results(tmp_path / "out", [np.zeros(1, np.complex64)], {})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no JSON\n",
        b"[]\n",
        b'{"arrays": [{"dtype": "float32", "shape": [4]}], "facts": {}}\n12',
        b'{"arrays": [{"dtype": "object", "shape": [1]}], "facts": {}}\n12345678',
        b'{"arrays": [{"dtype": "float32", "shape": [1000000000000]}], "facts": {}}\n1234',
        b'{"arrays": [{"dtype": "float32", "shape": [-1]}], "facts": {}}\n1234',
        b"[" * 100_000,
    ],
)
def test_a_forged_file_is_none(tmp_path, content):
    (tmp_path / "out").write_bytes(content)
    assert read_results(tmp_path / "out") is None
    assert read_results(tmp_path / "missing") is None
