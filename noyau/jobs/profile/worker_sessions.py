"""Sessions in a worker, run as for a user: timed, traced, or measured for memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau.errors import UnsupportedError
from noyau.hosts.onnxruntime.runs import BoundRun, PlainRun, ends_run, run, self_timed
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.workers.array_files import is_text, read_arrays
from noyau.workers.resources import forget_peak, peak_bytes, resident_bytes

if TYPE_CHECKING:
    import onnxruntime

ArrayFiles = Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class TimedRuns:
    """A session to be timed, with bound inputs and outputs if possible; `traced`: onnxruntime's profiler is on."""

    call: BoundRun | PlainRun
    traced: bool

    def lasts(self, calls: int) -> float:
        return self_timed([self.call] * calls)

    def tell(self) -> dict[str, Any]:
        """Stop the profiler; `trace` of the result: its file, or None."""
        return {"trace": self.call.session.end_profiling() if self.traced else None}


def time_runs(model: Path, inputs: ArrayFiles, *, trace: Path | None, **options: Any) -> TimedRuns:
    """Open a session of a model file with `options` of `open_session`; `trace`: the folder of the profiler's file."""
    session = open_session(model.read_bytes(), trace=trace, **options)
    return TimedRuns(ends_run(session, read_arrays(inputs)), trace is not None)


def weigh_runs(model: Path, inputs: ArrayFiles, threads: int, prepacked: bool) -> dict[str, int | None]:
    """Run a session of a model file twice on arrays, in a process that does nothing else.

    The result: resident bytes before the session is opened (`started`: Python, onnxruntime and the inputs) and after
    (`opened`), and the peaks in between (`opening`) and in runs (`running`); None if the system does not report it."""
    arrays, steps = read_arrays(inputs), {"started": resident_bytes()}
    session = open_session(model, threads=threads, prepacked=prepacked)
    steps |= {"opened": resident_bytes(), "opening": peak_bytes()}
    forget_peak()
    for _ in range(2):
        run_once(session, arrays)
    steps["running"] = peak_bytes()
    return steps


def run_once(session: onnxruntime.InferenceSession, arrays: Mapping[str, np.ndarray]) -> None:
    """Run it as a user does: onnxruntime allocates the outputs. InputError where it refuses the arrays."""
    if not any(is_text(array) for array in arrays.values()):
        with suppress(UnsupportedError):  # it has run, but an output is no tensor
            run(session, arrays)
            return
    PlainRun(session, dict(arrays))()
