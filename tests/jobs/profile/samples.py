"""A profile with something of everything. Support for tests."""

from __future__ import annotations

from noyau.jobs.profile.record import LargeValue, NodeMemory, NodeTime, OperatorTime, PathTime, Profile, ProfiledSize
from noyau.timing.machine import Machine

MACHINE = Machine(
    cpu="Some CPU",
    cores=2,
    level="x86-64-v3",
    compiler="none",
    os="Linux 6",
    versions={"onnxruntime": "1.31.1", "noyau": "0.1"},
)
NODES = (
    NodeTime("MatMul", ("MatMul#3",), False, 1, 600e-6),
    NodeTime("QuickGelu", ("Sigmoid#4", "Mul#5"), True, 1, 150e-6, "sigmoid_0_abc"),
    NodeTime("Mul", ("Mul#6",), False, 1, 100e-6, "sigmoid_0_abc"),
    NodeTime("Exp", ("Exp#7",), False, 2, 50e-6, "exp_1_def"),
    NodeTime("Reorder", (), True, 1, 40e-6),
)
OPERATORS = (
    OperatorTime("MatMul", 1, 600e-6, 600e-6, True),
    OperatorTime("QuickGelu", 1, 150e-6, 150e-6, False),
    OperatorTime("Mul", 1, 100e-6, 100e-6, True),
    OperatorTime("Exp", 1, 50e-6, 50e-6, True),
    OperatorTime("Reorder", 1, 40e-6, 40e-6, False),
)
PATHS = (
    PathTime("sigmoid_0_abc", 2, ("Sigmoid", "Mul", "Mul"), ("QuickGelu", "Mul"), 2, 250e-6, 1 << 20, 50e-6, 200e-6),
    PathTime("exp_1_def", 1, ("Exp",), ("Exp",), 1, 50e-6),
    PathTime("neg_2_eaf", 1, ("Neg", "Abs"), (), 0, 0.0, 8, 1e-9, 0.0),
)
MEMORY = NodeMemory(
    3 << 20,
    30 << 20,
    50 << 20,
    70 << 20,
    60 << 20,
    (LargeValue("h", "float", (2, 128), 1024), LargeValue("", "int64", (), 8)),
)


def at(sequence: int = 128, memory: NodeMemory = MEMORY, **others: object) -> ProfiledSize:
    known = {
        "sizes": {"batch": 1, "sequence": sequence},
        "run_s": 1e-3,
        "low_s": 0.9e-3,
        "high_s": 1.25e-3,
        "traced_s": 2e-3,
        "between_s": 60e-6,
        "runs": 40,
        "nodes": NODES,
        "operators": OPERATORS,
        "paths": PATHS,
        "notes": ("ids i64[1, 128]: made up",),
    }
    return ProfiledSize(memory=memory, **{**known, **others})


def profile(*sequences: int, top: int = 12) -> Profile:
    return Profile(MACHINE, "llama.onnx", 12, 1, tuple(at(each) for each in sequences or (128,)), top)


_NUMBER = {"type": "number", "minimum": 0}
_OF_ALL = {"name": {"type": "string"}, "ph": {"enum": ["X", "M", "i", "s", "f"]}, "args": {"type": "object"}}
# Complete events and metadata of Chrome's trace event format, and what torch's profiler writes beside them.
TRACE = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "traceEvents": {
            "type": "array",
            "minItems": 1,
            "items": {
                "required": ["name", "ph", "pid", "tid"],
                "properties": _OF_ALL,
                "if": {"properties": {"ph": {"const": "X"}}},
                "then": {"required": ["ts", "dur"], "properties": {"ts": _NUMBER, "dur": _NUMBER}},
            },
        },
        "displayTimeUnit": {"enum": ["ms", "ns"]},
    },
}
