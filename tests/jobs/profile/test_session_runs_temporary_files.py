from __future__ import annotations

import tempfile

import onnx
import pytest

from noyau.errors import OutputError
from noyau.jobs.profile.session_runs import SessionBench, discard, parse, writing


def test_what_is_discarded_takes_no_room(tmp_path):
    with discard(tmp_path / "w"):
        (tmp_path / "w").write_bytes(bytes(4 << 20))  # more than a pipe holds
        assert not (tmp_path / "w").is_file()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, b"\xff" * 9])
def test_an_optimized_model_that_was_not_written(content, tmp_path):
    if content is not None:
        (tmp_path / "o.onnx").write_bytes(content)
    with pytest.raises(OutputError, match=r"did not write its optimized model to .*: is there room for it\? TMPDIR="):
        parse(onnx.ModelProto, tmp_path / "o.onnx")


def test_nowhere_to_write(near, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(OutputError, match=r"cannot be written to .*: No such file or directory; TMPDIR=FOLDER names"):
        SessionBench(1).__enter__()
    with pytest.raises(OutputError, match="one line"), writing():
        raise OutputError("one line")
