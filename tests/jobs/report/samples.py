"""Reports to render and to write."""

from __future__ import annotations

from noyau.jobs.optimize.record import EndToEnd, KernelRecord, Report, UnfusedNodes
from noyau.timing.machine import Machine
from noyau.timing.verdict import Verdict

MACHINE = Machine(
    cpu="A Processor 9000",
    cores=2,
    level="x86-64-v3",
    compiler="gcc 12.2.0",
    os="Linux 6.1",
    versions={"onnxruntime": "1.31.1", "numpy": "2.4.6"},
)
HOSTILE = (
    "[red]x[/red]",
    "[/]",
    "\x1b[31mboo",
    "a\nb",
    "\u202egnp",
    "[link=http://a]b",
    "\ud800",
    ":boom:",
    "x" * 5000,
)

KEPT = KernelRecord(
    name="sum_rsqrt_0_3fa91c2b",
    places=5,
    replaces=("Pow", "ReduceMean", "Add", "Sqrt", "Reciprocal", "Mul", "Mul"),
    language="c",
    verdict=Verdict.FASTER,
    speedup=4.9,
    speedup_low=4.71,
    speedup_high=5.02,
    bytes=16_000_000,
    floor_ratio=0.812,
    error=1.2e-7,
    error_unfused=1.8e-7,
    kept=True,
    after_s=0.32e-3,
)
DROPPED = KernelRecord(
    name="max_exp_sum_1_deadbeef",
    places=2,
    replaces=("Mul", "Add", "Softmax"),
    language="c",
    verdict=Verdict.AMBIGUOUS,
    speedup=1.01,
    speedup_low=0.7,
    speedup_high=1.3,
    error=float("inf"),
    kept=False,
    reason="ambiguous: 1.01x",
)
WRONG = KernelRecord(
    name="sigmoid_2_00000000", places=1, replaces=("Sigmoid", "Mul"), language="c", reason="wrong at y[0, 3]: got 0"
)
REPORT = Report(
    machine=MACHINE,
    model="llama.onnx",
    nodes_before=151,
    nodes_after=64,
    ceiling=1.312,
    kernels=(KEPT, DROPPED, WRONG),
    end_to_end=EndToEnd(12.3e-3, 10.1e-3, Verdict.FASTER, 1.22, 3e-7),
    not_fused=(
        UnfusedNodes(tuple(f"/layers.{k}/MatMul" for k in range(15)), "a product of matrices"),
        UnfusedNodes(("one",), "a single operator: there is nothing to fuse"),
        UnfusedNodes(("two",), "a single operator: there is nothing to fuse"),
    ),
    inputs=("ids i64[2, 7]: made up, below 1024",),
)
BARE = Report(machine=MACHINE, model="plain.onnx", nodes_before=3, nodes_after=3)


def hostile(name: str) -> Report:
    """A report in which every text of a model is this one."""
    kernel = KernelRecord(name=name, places=1, replaces=(name,) * 20, language="c", reason=name)
    return Report(
        machine=MACHINE,
        model=name,
        nodes_before=1,
        nodes_after=1,
        kernels=(kernel,),
        not_fused=(UnfusedNodes((name,) * 3, name),),
        inputs=(name,),
    )
