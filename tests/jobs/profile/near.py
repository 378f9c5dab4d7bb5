"""Workers without processes, so that a test takes no time to start them. Support for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noyau.jobs.profile.onnx_overheads import Overhead
from noyau.workers.resources import pin


class NearWorker:
    """Does at once, and here, what a worker does in its process."""

    state: Any = None

    def __init__(self, name: str, patience_s: float = 0.0) -> None:
        self.name = name

    def __enter__(self) -> NearWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        """There is nothing to start."""

    def end(self) -> None:
        """Let go of the state."""
        self.state = None

    def ask(self, handler: Callable[..., Any], *arguments: Any) -> Any:
        return None if handler is pin else handler(*arguments)

    def open(self, factory: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        self.state = factory(*arguments, **options)

    def call(self, handler: Callable[..., Any], *arguments: Any) -> Any:
        return handler(self.state, *arguments)


USUAL = Overhead(2.5e-6, 0.1e-6, 0.02e-6, 2.5e-6, 5e-6)
