from __future__ import annotations

import json
import pickle
import sys
from contextlib import contextmanager

import pytest

from noyau.jobs.check import script_run

MISSING = "CUDA bindings not found. Please pip install the cuda-bindings package."


def check_of(script, tmp_path, monkeypatch):
    """The record of a script where numba.cuda cannot be imported."""

    @contextmanager
    def hooks(session, *_):
        session.lacks[MISSING] = f"it cannot be imported: {MISSING}"
        yield

    path, record = tmp_path / "kernels.py", tmp_path / "record.json"
    path.write_text(script, encoding="utf-8")
    wish = {"path": str(path), "arguments": [], "launch": None, "record": str(record), "maps": False}
    monkeypatch.setenv("NOYAU_SCRIPT", json.dumps(wish))
    monkeypatch.setattr(script_run, "hooks_of_script", hooks)
    for name in ("argv", "path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    script_run.main()
    return pickle.loads(record.read_bytes())


@pytest.mark.parametrize(
    "fault", [f"ImportError({MISSING!r})", "type('CudaSupportError', (RuntimeError,), {})('driver')"]
)
def test_an_environment_that_lacks_a_package_is_no_fault_of_a_script(tmp_path, monkeypatch, fault):
    check = check_of(f"raise {fault}\n", tmp_path, monkeypatch)
    assert (check.ok, check.is_verified) == (True, False)
    assert f"numba.cuda: not checked: it cannot be imported: {MISSING}" in str(check)


def test_another_import_that_fails_is(tmp_path, monkeypatch):
    check = check_of("import nothing_of_this_name\n", tmp_path, monkeypatch)
    assert not check.ok
    assert "ModuleNotFoundError" in check.fault
