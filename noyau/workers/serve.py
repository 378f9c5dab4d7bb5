"""The worker's end of the protocol: requests are functions to run, replies are their results or their errors."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, assert_never

from noyau.errors import CheckError, FindingKind, NoyauError
from noyau.workers.channel import Channel
from noyau.workers.tamper_detection import Watch


class StateUse(Enum):
    """The relation of a request to the one object that a worker keeps between requests, its state."""

    STATELESS = "stateless"  # the handler's arguments are all that it sees
    OPENS = "opens"  # the handler's result becomes the state
    USES = "uses"  # the state is the handler's first argument


@dataclass(frozen=True, slots=True)
class Request:
    """A function that the worker runs. It travels by its name, its arguments as copies."""

    handler: Callable[..., Any]
    arguments: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    scope: StateUse = StateUse.STATELESS


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a handler; or the class name and the message of its error, and the kind of a finding that it is."""

    result: Any = None
    error: str = ""
    message: str = ""
    kind: FindingKind | None = None


def serve(channel: Channel, state: Any = None) -> None:
    """Reply to requests until the other end is closed."""
    worker = _Handlers(state)
    with suppress(EOFError):
        while True:
            channel.send(worker.reply(channel.receive()))


class _Handlers:
    """Runs handlers, and holds the state. `is_open`: there is one."""

    def __init__(self, state: Any) -> None:
        self.state, self.is_open = state, state is not None
        self.watch = Watch()

    def reply(self, content: bytes) -> bytes:
        """Return the reply to a request, both pickled."""
        try:
            return pickle.dumps(Reply(self._run(pickle.loads(content))))  # noqa: S301  from the process that started us
        except NoyauError as error:
            kind = error.kind if isinstance(error, CheckError) else None
            reply = Reply(error=type(error).__name__, message=str(error), kind=kind)
        except Exception as error:  # noqa: BLE001  the parent raises it, whatever it is
            reply = Reply(error="CheckError", message=f"failed with {type(error).__name__}: {error}")
        return pickle.dumps(reply)

    def _run(self, request: Request) -> Any:
        match request.scope:
            case StateUse.OPENS:
                self.state, self.is_open = None, False  # its memory goes first
                self.state, self.is_open = request.handler(*request.arguments, **request.options), True
                return None
            case StateUse.USES:
                if not self.is_open:
                    raise NoyauError("nothing is open yet")
                result = request.handler(self.state, *request.arguments, **request.options)
            case StateUse.STATELESS:
                result = request.handler(*request.arguments, **request.options)
            case _:
                assert_never(request.scope)
        self.watch.refuse("the candidate")
        return result


def pin(cores: Sequence[int]) -> None:
    """Run on these cores alone, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
