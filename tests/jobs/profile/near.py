"""Workers without processes, so that a test takes no time to start them. Support for tests."""

from __future__ import annotations

from typing import Any

from noyau.jobs.profile.overheads import Overhead
from noyau.workers.timing_server import Served, opened


class NearWorker:
    """Does at once, and here, what a worker does in its process."""

    held: Served

    def __init__(self, name: str, patience_s: float = 0.0) -> None:
        self.name = name

    def __enter__(self) -> NearWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        """There is nothing to start."""

    def end(self) -> None:
        """Let go of what is held."""
        self.held = None

    def ask(self, command: str, **arguments: Any) -> Any:
        match command:
            case "open":
                self.held = opened(**arguments)
            case "run":
                return self.held.lasts(arguments["calls"])
            case "tell":
                return {"peak_bytes": None, "told": self.held.tell()}
        return None


USUAL = Overhead(2.5e-6, 0.1e-6, 0.02e-6, 2.5e-6, 5e-6)
