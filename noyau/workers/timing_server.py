"""The other end of `workers`: a process that opens a side, runs it as often as it is told, and times it."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Sequence
from typing import Any, BinaryIO, Protocol

from noyau.errors import NoyauError
from noyau.workers.resources import peak_bytes
from noyau.workers.tamper_detection import Watch


class Served(Protocol):
    """What a worker holds."""

    def lasts(self, calls: int) -> float:
        """The seconds that so many calls take together."""
        ...

    def tell(self) -> Any:
        """What else is to be known of it, as JSON has it; NoyauError where a run that was timed was wrong."""
        ...


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer commands, a line of JSON each, until there are no more."""
    held: Served | None = None
    watch = Watch()
    for line in source:
        command = json.loads(line)
        name = command.pop("command")
        try:
            if name == "open":
                held = None  # its memory goes first
                held, result = opened(**command), None
            else:
                result = _answer(name, held, command)
                watch.refuse("the candidate")
            answer = {"result": result}
        except NoyauError as error:
            answer = {"kind": type(error).__name__, "fault": str(error)}
        except Exception as error:  # noqa: BLE001  whatever it is, the parent is told
            answer = {"kind": "CheckError", "fault": f"failed with {type(error).__name__}: {error}"}
        sink.write(json.dumps(answer).encode("ascii") + b"\n")
        sink.flush()


def opened(factory: str, **arguments: Any) -> Served:
    """The side that a function of noyau, or of the tests, makes: "module:function"."""
    module, _, function = factory.partition(":")
    made: Served = getattr(importlib.import_module(module), function)(**arguments)
    return made


def pin(cores: Sequence[int]) -> None:
    """Run on these cores alone, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def _answer(name: str, held: Served | None, arguments: dict[str, Any]) -> Any:
    if name == "pin":
        return pin(arguments["cores"])
    if held is None:
        raise NoyauError("nothing is open yet")
    if name == "run":
        return held.lasts(int(arguments["calls"]))
    if name == "tell":
        return {"peak_bytes": peak_bytes(), "told": held.tell()}
    if name == "feed" and hasattr(held, "feed"):
        return held.feed(**arguments)
    raise NoyauError(f"there is no command {name!r}")
