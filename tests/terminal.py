"""Programs whose stderr is a terminal: there they tell of their progress."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class TerminalText:
    """The text that a program has written to its terminal."""

    def __init__(self, file: int) -> None:
        self.file, self.text = file, ""

    def until(self, word: str | None) -> str:
        """Read until a word is there, or to the end: the text, without controls, and without spaces at its ends."""
        while word is None or word not in self.text:
            try:
                read = os.read(self.file, 4096)
            except OSError:  # the program has ended
                read = b""
            if not read:
                assert word is None, f"{word!r} is not in {self.text!r}"
                break
            self.text = _CONTROLS.sub("", self.text + read.decode("utf-8", "replace"))
        return self.text.strip()


@contextlib.contextmanager
def in_terminal(command: Sequence[str], **options: Any) -> Iterator[tuple[subprocess.Popen[bytes], TerminalText]]:
    """The program of a command, which ends within, and what it tells."""
    ours, its = os.openpty()
    environment = {**options.pop("env", os.environ), "TERM": "xterm", "COLUMNS": "120"}
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=its, env=environment, **options) as process:
            os.close(its)
            yield process, TerminalText(ours)
    finally:
        os.close(ours)
