"""Events as onnxruntime's profiler writes them. Support for tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noyau.jobs.profile.traces import Tensor, TraceEvent


def event(name: str, start: int, lasted: int, operator: str = "Mul", outputs: Sequence[Tensor] = ()) -> TraceEvent:
    return TraceEvent(name, operator, start, lasted, (("float", (4,)),), tuple(outputs))


def loop(start: int = 0) -> list[TraceEvent]:
    """A Loop of two rounds of two nodes each, and a node before and after it: in the order in which they end."""
    return [
        event("n0", start, 5),
        event("n1_0", start + 20, 3),
        event("n1_1", start + 30, 4),
        event("n1_0", start + 40, 3),
        event("n1_1", start + 50, 4),
        event("n1", start + 10, 60, "Loop"),
        event("n2", start + 80, 6),
    ]


def told(one: TraceEvent) -> dict[str, Any]:
    shapes = {
        f"{side}_type_shape": [{element: list(shape)} for element, shape in tensors]
        for side, tensors in (("input", one.inputs), ("output", one.outputs))
    }
    return {
        "cat": "Node",
        "name": f"{one.name}_kernel_time",
        "ts": one.start_us,
        "dur": one.lasted_us,
        "args": {"op_name": one.operator, "provider": "CPUExecutionProvider", **shapes},
    }


def written_trace(path: Path, runs: Sequence[Sequence[TraceEvent]]) -> Path:
    """A file of events, a line each, with those of the session around them."""
    events: list[dict[str, Any]] = [{"cat": "Session", "name": "session_initialization", "ts": 1, "dur": 5, "args": {}}]
    for run in runs:
        events += [told(each) for each in run]
        for name in ("SequentialExecutor::Execute", "model_run"):
            events.append({"cat": "Session", "name": name, "ts": 1, "dur": 100, "args": {}})
    path.write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
    return path
