"""A model run in worker processes: alternately with and without onnxruntime's profiler, and once to measure memory."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noyau.errors import OutputError
from noyau.hosts.onnxruntime.bodies import Body
from noyau.hosts.onnxruntime.session_workers import Workers
from noyau.hosts.onnxruntime.sessions import OPTIMIZED, WEIGHTS
from noyau.jobs.profile.attribution import with_numbers, with_subgraphs
from noyau.jobs.profile.traces import ADVICE, NodeRuns, TraceEvent, node_runs, read_trace, unwritten
from noyau.jobs.profile.worker_sessions import time_runs, weigh_runs
from noyau.timing.comparison import compare
from noyau.timing.sides import WorkerSide
from noyau.timing.verdict import Comparison
from noyau.workers.array_files import write_arrays
from noyau.workers.worker import Worker, pin

if TYPE_CHECKING:
    import onnx

Arrays = Mapping[str, np.ndarray]
_PATIENCE_S = 600.0  # to open a large model


def parse(kind: type[onnx.ModelProto], path: Path) -> onnx.ModelProto:
    """The model of a file that onnxruntime wrote; OutputError where it is incomplete."""
    try:
        return kind.FromString(path.read_bytes())
    except Exception as error:
        raise unwritten("its optimized model", path) from error


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """A block that raises OutputError where files for the profile cannot be written."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        place = f"{tempfile.gettempdir()}: {error.strerror}; {ADVICE}"
        raise OutputError(f"files for the profile cannot be written to {place}") from error


@contextlib.contextmanager
def discard(path: Path) -> Iterator[None]:
    """A block in which a path links to the null device, so that gigabytes of weights written there take no room."""
    with contextlib.suppress(OSError):  # of a system without symbolic links
        path.symlink_to(os.devnull)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class TimedSession:
    """A timed model. `comparison`: the seconds of a run without (before) and with the profiler (after); `runs`: the
    timed runs with it; `numbered`: the model that onnxruntime got; `optimized`: the model that it made of that."""

    comparison: Comparison
    runs: list[list[TraceEvent]]
    numbered: onnx.ModelProto
    optimized: onnx.ModelProto

    def nodes(self) -> list[NodeRuns]:
        return node_runs(self.runs, frozenset(with_subgraphs(self.optimized.graph)))


class SessionBench(Workers):
    """Runner of models with `threads` threads of onnxruntime (0: its own choice); use it in a `with`."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        with writing():
            super().__init__(_PATIENCE_S, [f"the process {how} the profiler" for how in ("without", "with")])

    def run(
        self,
        model: onnx.ModelProto,
        arrays: Arrays,
        budget_s: float,
        *,
        optimized: bool = True,
        folder: Path | None = None,
        prepacked: bool = True,
        bodies: Sequence[Body] = (),
    ) -> TimedSession:
        """Run a model alternately with and without the profiler, for about `budget_s`. `folder`: of external tensors;
        `bodies`: subgraphs whose nodes have positions. ModelError or InputError where onnxruntime refuses it,
        CheckError where it crashes or hangs, OutputError where there is no room."""
        numbered, tensors = with_numbers(model, bodies), None if folder is None else folder.absolute()
        options = {"folder": tensors, "threads": self.threads, "prepacked": prepacked, "optimized": optimized}
        pin(self.workers, self.threads)
        with writing(), tempfile.TemporaryDirectory(dir=self.folder) as name, discard(Path(name) / WEIGHTS):
            place = Path(name)
            (place / "model.onnx").write_bytes(numbered.SerializeToString())
            inputs = write_arrays(arrays, place)
            for side, trace in zip(self.workers, (None, place), strict=True):
                side.open(time_runs, place / "model.onnx", inputs, trace=trace, **options)
            before, after = map(WorkerSide, self.workers)
            comparison = compare(before, after, budget_s=budget_s)
            runs = read_trace(Path(after.tell()["trace"]))
            graph = parse(type(model), place / OPTIMIZED)
        return TimedSession(comparison, timed_runs(runs, comparison), numbered, graph)

    def weigh(self, path: Path, arrays: Arrays, prepacked: bool) -> dict[str, int | None]:
        """The bytes of memory at each step of `weigh_runs`, in a process that does nothing else."""
        with writing(), tempfile.TemporaryDirectory(dir=self.folder) as name:
            inputs = write_arrays(arrays, Path(name))
            with Worker("the process that runs the model", _PATIENCE_S) as worker:
                return worker.ask(weigh_runs, path.absolute(), inputs, self.threads, prepacked)


def timed_runs(runs: list[list[TraceEvent]], comparison: Comparison) -> list[list[TraceEvent]]:
    """The timed runs among all that the profiler recorded: the last ones. If its buffer of a million events was full
    before the end, the later half of its runs."""
    calls = comparison.pairs * comparison.calls
    return runs[-calls:] if len(runs) >= calls else runs[len(runs) // 2 :]
