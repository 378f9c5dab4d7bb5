"""What a machine can do wrong: a compiler that hangs, a disk that is full."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from tests.small_models import twice, written
from tests.terminal import in_terminal

ROOT = Path(__file__).resolve().parents[3]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_ctrl_c_does_not_wait_for_a_compiler_that_hangs(tmp_path):
    (tmp_path / "cc").write_text('#!/bin/sh\ncase "$1" in --version) echo "hanging 1.0";; *) sleep 100;; esac\n')
    (tmp_path / "cc").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "noyau", "optimize", str(written(twice(), tmp_path))]
    with in_terminal(command, cwd=ROOT, env=environment) as (process, text):
        text.until("compiling")
        time.sleep(0.5)
        asked_s = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert text.until(None).endswith("noyau: interrupted")
    assert time.monotonic() - asked_s < 50  # it sleeps for 100
    assert files(tmp_path) == ["cache", "cc", "model.onnx"]
