"""Processes of a benchmark that stop at gates, so that nothing else is at work while one of them is timed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from threading import Timer
from typing import Any

READY = "ready"


def gate() -> str:
    """Tell who began this process that it is ready, and wait for leave to go on, which may be a text; the process ends
    where nobody is left to give it, for nobody would have it alone then."""
    print(READY, flush=True)
    if not (line := sys.stdin.readline()):
        sys.exit(f"{sys.argv[0]}: the process that began this one has ended")
    return line.strip()


class Alone:
    """A process of its own, by these words of the command line behind `--alone`; `folder`: where its caches lie."""

    def __init__(self, script: str, *words: str, folder: str) -> None:
        places = {"XDG_CACHE_HOME": folder, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
        environment: Mapping[str, str] = {**os.environ, **places, "TRITON_CACHE_DIR": f"{folder}/triton"}
        command = [sys.executable, script, "--alone", *words]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def lines(self) -> Iterator[str]:
        """What it says up to the next gate, or to its end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.rstrip() == READY:
                return
            yield line.rstrip()

    def ready(self, limit_s: float | None = None) -> str:
        """The last line that it says before its next gate, or its end, once it is there; the others are shown. Beyond
        a limit it is ended."""
        timer = Timer(limit_s, self.process.kill) if limit_s else None
        if timer:
            timer.start()
        *lines, last = list(self.lines()) or [""]
        if timer:
            timer.cancel()
        print("\n".join(lines), end="\n" * bool(lines), flush=True)
        return last

    def go(self, word: str = "") -> None:
        """Open the gate at which it is."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has failed, which its end says
            self.process.stdin.write(f"{word}\n")
            self.process.stdin.flush()

    def found(self) -> dict[str, Any]:
        """What it says at last, as JSON."""
        last = self.ready()
        self.process.wait()
        try:
            found: dict[str, Any] = json.loads(last)
        except ValueError:
            found = {"failed": f"ended with {self.process.returncode}: {last[-300:]}"}
        return found
