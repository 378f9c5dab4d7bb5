"""In a worker: a session that runs as it would for its user, timed, traced or weighed."""

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
    """A session that runs, with bound ends where they can be; where it is `traced`, onnxruntime's profiler is on."""

    call: BoundRun | PlainRun
    traced: bool

    def lasts(self, calls: int) -> float:
        return self_timed([self.call] * calls)

    def tell(self) -> dict[str, Any]:
        """`trace`: the file on when each node ran, if there is one; the profiler is off from then on."""
        return {"trace": self.call.session.end_profiling() if self.traced else None}


def time_runs(model: Path, inputs: ArrayFiles, *, trace: Path | None, **options: Any) -> TimedRuns:
    """A session of a model file, opened with `options` of `open_session` and bound; `trace`: the profiler's folder."""
    session = open_session(model.read_bytes(), trace=trace, **options)
    return TimedRuns(ends_run(session, read_arrays(inputs)), trace is not None)


def weigh_runs(model: Path, inputs: ArrayFiles, threads: int, prepacked: bool) -> dict[str, int | None]:
    """Run a session of a model file twice on arrays; nothing else is in the process.

    The result: the resident bytes before (`started`: Python, onnxruntime and the inputs) and after the session is there
    (`opened`), and the most meanwhile (`opening`) and in runs (`running`); None where the system does not say."""
    arrays, steps = read_arrays(inputs), {"started": resident_bytes()}
    session = open_session(model, threads=threads, prepacked=prepacked)
    steps |= {"opened": resident_bytes(), "opening": peak_bytes()}
    forget_peak()
    for _ in range(2):
        run_once(session, arrays)
    steps["running"] = peak_bytes()
    return steps


def run_once(session: onnxruntime.InferenceSession, arrays: Mapping[str, np.ndarray]) -> None:
    """Run it as a user does, whose outputs onnxruntime allocates. InputError where it refuses the arrays."""
    if not any(is_text(array) for array in arrays.values()):
        with suppress(UnsupportedError):  # it has run; an output is no tensor
            run(session, arrays)
            return
    PlainRun(session, dict(arrays))()
