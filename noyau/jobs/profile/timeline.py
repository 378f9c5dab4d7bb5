"""Timelines in Chrome's trace format, which Perfetto opens: events of nodes, samples of stacks, and gaps between
kernels or nodes. Times are in microseconds."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noyau.jobs.profile.record import CallTime
from noyau.jobs.report.text import write_json
from noyau.timing.ranges import Event

if TYPE_CHECKING:
    from noyau.jobs.profile.session_runs import TimedSession

NODES, GAPS = 1, 2  # the threads of the timeline of a model
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of events on a GPU
_MOST_RUNS = 5  # of a model, in a timeline
_STACKS = 1 << 21  # number of the first thread of a timeline that shows stacks
_PYTHON = (".py", "]", ">")  # ends of the names of files, notebook cells and frozen modules
_Frame = tuple[str, str]
_Call = tuple[_Frame, str]  # with the place where it runs


def write_trace(events: Iterable[Event], path: Path) -> None:
    """Write events as a timeline, atomically. OutputError where that fails."""
    write_json({"traceEvents": list(events), "displayTimeUnit": "ms"}, path)


def span(name: str, start_us: float, end_us: float, pid: int, tid: int, cat: str, **args: Any) -> Event:
    """A complete event."""
    times = {"ts": start_us, "dur": max(end_us - start_us, 0.0)}
    return {"name": name, "ph": "X", "cat": cat, **times, "pid": pid, "tid": tid, "args": args}


def label(kind: str, name: str, pid: int, tid: int = 0) -> Event:
    """The event that names a process or a thread; `kind`: process_name or thread_name."""
    return {"name": kind, "ph": "M", "ts": 0.0, "pid": pid, "tid": tid, "args": {"name": name}}


def gaps(spans: Iterable[tuple[float, float]], pid: int, tid: int) -> Iterator[Event]:
    """The gaps between spans, in which none of them runs."""
    until = None
    for start, end in sorted(spans):
        if until is not None and start > until:
            yield span("gap", until, start, pid, tid, "gap")
        until = end if until is None else max(until, end)


def gap_threads(busy: Sequence[Event], what: str) -> Iterator[Event]:
    """The gaps between events of each process or GPU, on a separate thread."""
    for pid in {each["pid"] for each in busy}:
        yield label("thread_name", f"gaps between {what}", pid, 1 << 20)
        yield from gaps(((each["ts"], each["ts"] + each["dur"]) for each in busy if each["pid"] == pid), pid, 1 << 20)


def call_rows(events: Iterable[Event]) -> Iterator[CallTime]:
    """The times of events by name, and the bytes that they copy or set; events must not be nested."""
    rows = defaultdict[tuple[str, str], list[tuple[float, int]]](list)
    for each in events:
        spent = 1e-6 * each["dur"], each["args"].get("bytes") or 0
        rows[short_name(each["name"]), "gpu" if each["cat"] in ON_GPU else "host"].append(spent)
    for (name, where), those in rows.items():
        spent_s, moved = map(sum, zip(*those, strict=True))
        yield CallTime(name, "", len(those), spent_s, spent_s, int(moved) or None, where)


def short_name(name: str) -> str:
    """The name of a kernel without namespaces and types, with the function that it computes if its C++ name has one."""
    if ("<" not in name and "(" not in name) or name.startswith("Mem"):
        return name
    functions = re.findall(r"\w*(?:Functor\w*|KernelImpl|_kernel_cuda)\b", name)
    short = re.split(r"[<(]", name.replace("(anonymous namespace)::", ""))[0].rpartition("::")[2].removeprefix("void ")
    return f"{short} ({functions[-1]})" if functions else short


def model_events(ran: TimedSession, labels: Mapping[str, Sequence[str]], name: str, pid: int) -> Iterator[Event]:
    """Events of the last runs of a model in onnxruntime: its nodes, with the file's nodes in `labels`, and the gaps."""
    yield label("process_name", name, pid)
    yield from (label("thread_name", each, pid, tid) for tid, each in ((NODES, "nodes"), (GAPS, "gaps between nodes")))
    for run in ran.runs[-_MOST_RUNS:]:
        if spans := [(each.start_us, each.start_us + each.lasted_us) for each in run]:
            yield span("a run", min(spans)[0], max(end for _, end in spans), pid, NODES, "run")
        for each, (start, end) in sorted(zip(run, spans, strict=True), key=lambda pair: (pair[1][0], -pair[1][1])):
            inputs, outputs = ([f"{kind}{list(shape)}" for kind, shape in side] for side in (each.inputs, each.outputs))
            nodes = list(labels.get(each.name, ()))
            yield span(each.operator, start, end, pid, NODES, "node", nodes=nodes, inputs=inputs, outputs=outputs)
        yield from gaps(spans, pid, GAPS)


def stack_events(samples: Iterable[Mapping[str, Any]], script: str) -> tuple[list[Event], list[CallTime]]:
    """The spans and the times of functions, including native ones, from py-spy's samples of stacks: of the script's own
    thread the callees of its module or notebook cells, of other threads all. Samples of a thread have their own row in
    the timeline, since they do not nest with its ranges."""
    events, (self_us, total_us, python_us) = list[Event](), (defaultdict[_Call, float](float) for _ in range(3))
    threads = defaultdict[int, list[Mapping[str, Any]]](list)
    for sample in samples:
        threads[sample["tid"]].append(sample)
    for number, thread in enumerate(threads.values(), _STACKS):
        is_main = any(_is_body(_frame(each), script) for each in thread)
        where, pid = "host" if is_main else "threads", thread[0]["pid"]
        events.append(label("thread_name", f"stacks, sampled{'' if is_main else ', of another thread'}", pid, number))
        stack, last_us = list[tuple[_Frame, float]](), 0.0
        for sample in thread:
            frames = [frame for frame, _ in stack]
            bodies = (at for at, frame in enumerate(frames) if _is_body(frame, script))
            seen = frames[next(bodies, len(frames)) if is_main else 0 :]
            for frame in dict.fromkeys(seen):
                total_us[frame, where] += sample["ts"] - last_us
            if seen:
                self_us[seen[-1], where] += sample["ts"] - last_us
                inner = next((frame for frame in reversed(seen) if frame[1].endswith(_PYTHON)), seen[-1])
                python_us[inner, where] += sample["ts"] - last_us
            last_us = sample["ts"]
            if sample["ph"] == "B":
                stack.append((_frame(sample), last_us))
            elif stack:
                (name, file), start_us = stack.pop()
                events += [span(name, start_us, last_us, pid, number, "stack", file=file)] if seen else []
    return events, [
        CallTime(*call[0], None, 1e-6 * self_us[call], 1e-6 * us, None, call[1], 1e-6 * python_us[call])
        for call, us in total_us.items()
    ]


def _is_body(frame: _Frame, script: str) -> bool:
    """Whether a frame is the module of the script, or a cell of the notebook."""
    name, file = frame
    return name.startswith("<module>") and (file == script or file.startswith(f"{script}[cell "))


def _frame(sample: Mapping[str, Any]) -> _Frame:
    """The name of a sample's function with its place, and its file."""
    name, file, line = sample["name"], sample["args"]["filename"], sample["args"]["line"]
    if file.endswith(_PYTHON):
        return f"{name} ({Path(file).name}:{line})", file
    library = Path(file).name.partition(".")[0]
    return f"({library})" if name.startswith("0x") else f"{name} ({library})", file
