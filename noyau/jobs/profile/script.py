"""A user's script under a profiler, also if it fails or is interrupted."""

import cProfile
import json
import math
import os
import pstats
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from noyau.errors import InputError, MissingExtraError, OutputError
from noyau.jobs.profile.record import CallTime, ScriptProfile
from noyau.jobs.profile.timeline import ON_GPU, call_rows, label, stack_events
from noyau.sanitizer.scripts.notebooks import cells_of, run_cells
from noyau.text import from_json
from noyau.timing.ranges import event, record_events
from noyau.workers.import_path import import_path, when_imported
from noyau.workers.resources import peak_bytes
from noyau.workers.signals import INTERRUPTED, TimeIsUp, interrupt_once, time_limit, wait_or_end

_START_S = 10.0  # for Python to start, and for native code to end


def profile_script(
    path: Path, arguments: Sequence[str], top: int, *, time_s: float = math.inf, native: bool | None = None
) -> ScriptProfile:
    """Profile a script or notebook in a separate process: by py-spy, which sees native functions and threads, if it is
    installed and `native` is not False; else the main thread by cProfile. `time_s`: time limit. InputError without the
    script, MissingExtraError if `native` and py-spy is missing, OutputError if the script leaves no profile."""
    if not path.is_file():
        raise InputError(f"there is no script {path}")
    if path.suffix == ".ipynb":
        cells_of(path)  # raises for a file that is no notebook
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    spy = None if native is False else shutil.which("py-spy", path=places)
    if native and spy is None:
        raise MissingExtraError("--native needs py-spy, which is not installed; run: pip install py-spy")
    with tempfile.TemporaryDirectory(prefix="noyau-") as folder:
        trace, record, log = (Path(folder) / name for name in ("trace.json", "run.json", "log.txt"))
        ends = os.dup(1), os.dup(2)  # outputs of the script, separate from py-spy's messages
        line = [sys.executable, "-m", __name__, str(record), "" if spy else "1", str(time_s), *map(str, ends)]
        line += [str(path), *arguments]
        if spy is not None:
            options = ["--native", "--idle", "--function", "--full-filenames", "--format", "chrometrace"]
            line = [spy, "record", *options, "--rate", "100", "--output", str(trace), "--", *line]
        root = os.pathsep.join(filter(None, (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", ""))))
        own, start_s = {**os.environ, "PYTHONPATH": root}, time.perf_counter()
        with log.open("wb") as out, subprocess.Popen(line, stdout=out, stderr=out, env=own, pass_fds=ends) as process:
            cut = wait_or_end(process, time_s + _START_S, signal.SIGINT)
        for end in ends:
            os.close(end)
        if not record.exists() and not cut:
            raise OutputError(f"{path} left no profile: it crashed, or ended its process without Python's exit")
        try:
            if record.exists():
                ran = from_json(ScriptProfile, json.loads(record.read_text("utf-8")))
            else:  # the process was ended, but py-spy has its samples
                ran = ScriptProfile(str(path), time.perf_counter() - start_s, cut, 1, None, (), ())
            samples = [] if spy is None else json.loads(trace.read_text("utf-8"))
        except (OSError, ValueError) as error:
            last = next(iter(log.read_text("utf-8", "replace").split("\n")[-2:]), "")
            raise OutputError(f"py-spy did not profile {path}: {last or error}; --no-native does without it") from error
    return replace(ran if spy is None else _with_samples(ran, samples), top=top)


def _with_samples(ran: ScriptProfile, samples: Sequence[Mapping[str, Any]]) -> ScriptProfile:
    """The run with the functions of its samples; both begin at the same time, up to one sample."""
    events, functions = stack_events(samples, ran.script)
    starts_us = (each["ts"] for each in events if each["ph"] == "X")
    begin_us = min(starts_us, default=0.0) - (ran.events[0]["ts"] if ran.events else 0.0)
    moved = (each if each["ph"] == "M" else {**each, "ts": each["ts"] + begin_us} for each in ran.events)
    return replace(ran, events=(*moved, *events), functions=(*ran.functions, *functions))


def run_script(
    path: Path, arguments: Sequence[str], limit_s: float, profiler: cProfile.Profile | None
) -> ScriptProfile:
    """Run a script in this process, for `limit_s` at most, under `profiler` and, on a GPU, torch's; errors end it."""
    end, status, script = "", 0, partial(runpy.run_path, str(path), run_name="__main__")
    run = partial(run_cells, cells_of(path), str(path)) if path.suffix == ".ipynb" else script
    sys.argv = [str(path), *arguments]
    with record_events() as events, import_path(path), ExitStack() as recording:

        def begin() -> None:
            from noyau.jobs.profile.torch_wall import device_events

            if threading.current_thread() is threading.main_thread():  # torch's profiler must end in its own thread
                recording.enter_context(device_events(events))

        recording.enter_context(when_imported("torch", lambda: sys.modules["torch"].cuda._lazy_call(begin)))
        start_s = time.perf_counter()
        try:
            with time_limit(limit_s):
                run() if profiler is None else profiler.runcall(run)
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except KeyboardInterrupt:
            end, status = INTERRUPTED, 130
        except TimeIsUp:
            end, status = f"it did not end within {limit_s:g} s", 1
        except Exception as fault:  # noqa: BLE001  any error of the script
            end, status = f"{type(fault).__name__}: {fault}", 1
        end_s = time.perf_counter()
    spans = (event(path.name, start_s, end_s), *events, label("process_name", path.name, os.getpid()))
    stats = {} if profiler is None else vars(pstats.Stats(profiler))["stats"]
    functions = tuple(
        CallTime(name if file == "~" else f"{name} ({Path(file).name}:{line})", file, calls, self_s, total_s)
        for (file, line, name), (_, calls, self_s, total_s, _) in stats.items()
    )
    functions += tuple(call_rows(each for each in events if each.get("cat") in ON_GPU))
    return ScriptProfile(str(path), end_s - start_s, end, status, peak_bytes(), spans, functions)


if __name__ == "__main__":
    place, is_profiled, limit_s, out, err, script, *words = sys.argv[1:]
    os.dup2(int(out), 1)
    os.dup2(int(err), 2)
    signal.signal(signal.SIGINT, interrupt_once)
    ended = run_script(Path(script), words, float(limit_s), cProfile.Profile() if is_profiled else None)
    Path(place).write_text(json.dumps(asdict(ended)), encoding="utf-8")
