"""Sides that workers of the tests hold: good ones, and those that crash, hang, print or lie."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass

from noyau.errors import InputError


@dataclass
class Sleeper:
    """Says that each call takes `time_s`, and does something else besides."""

    time_s: float = 1e-3
    deed: str = ""

    def lasts(self, calls: int) -> float:
        match self.deed:
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "exit":
                print("no more of this \x1b[2J", file=sys.stderr, flush=True)
                os._exit(3)
            case "hang":
                time.sleep(60)
            case "print":
                print("{}")
                os.write(1, b"nonsense\n")
            case "fail":
                raise ZeroDivisionError("by zero")
            case "refuse":
                raise InputError("not these")
            case "patch":
                time.perf_counter = lambda: 0.0
        return self.time_s * calls

    def tell(self) -> dict[str, str]:
        return {"deed": self.deed}
