"""The page of an optimisation: verdict, graph before and after, kernels with their evidence, and plots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from noyau.compiler.partition.costs import flops
from noyau.hosts.onnxruntime.inputs import spell
from noyau.jobs.optimize.candidate import Candidate
from noyau.jobs.optimize.record import BindingRecord, Evidence, KernelRecord, Report
from noyau.jobs.optimize.render import header, spell_error, spell_speedup, summary
from noyau.jobs.page import document
from noyau.jobs.page.document import Page, Section, SizedTime, source_of, sweeps, table
from noyau.jobs.page.graphs import Node, graphs, model_drawing, plan_drawing
from noyau.jobs.profile.tables import spell_bytes
from noyau.jobs.report.text import WIDE
from noyau.text import printable
from noyau.timing.verdict import Verdict, spell_s

STATES = {Verdict.FASTER: "good", Verdict.SLOWER: "bad", Verdict.AMBIGUOUS: "doubt", Verdict.SAME: "plain"}


def page(report: Report) -> Page:
    """The page of a report."""
    head, *rest = (line.plain.strip() for line in summary(report, WIDE, printable))
    facts = dict(zip(("model", "machine"), (line.plain for line in header(report, WIDE, printable)), strict=False))
    verdict, evidence = report.end_to_end.verdict, report.evidence or Evidence(())
    state = "doubt" if report.doubts else STATES[verdict] if verdict else "plain"
    times = {one.planned.operator: list(_times(one, evidence)) for one in evidence.candidates}
    sections: list[Section] = [
        document.summary(head, state, rest, facts),
        *_graphs(evidence, report),
        table("Kernels", map(_row, report.kernels), "Choose a kernel for its source and certificate."),
        table("The whole model at each size", map(_binding, report.end_to_end.bindings)),
        sweeps("Kernels beside this machine", "", times),
        table(
            "Weights in few bits",
            (
                {"product": each.name, "weights": each.variant or "f32", "reason": each.reason}
                for each in (report.weights.products if report.weights else ())
            ),
        ),
        table(
            "Not fused",
            ({"nodes": len(each.nodes), "reason": each.reason, "which": each.nodes} for each in report.not_fused),
        ),
        document.lines("Graphs", (f"{graph.kind}: {graph.whole}" for graph in report.graphs)),
        document.lines("Inputs and notes", report.inputs),
    ]
    sources = {
        each.planned.operator: source_of(each.planned, each.evidence, each.certificate) for each in evidence.candidates
    }
    return Page(printable(report.model), "optimize", sections, sources)


def _row(kernel: KernelRecord) -> dict[str, Any]:
    decider = _decider(kernel)
    return {
        "kernel": kernel.name,
        "verdict": kernel.verdict or "-",
        "speedup": (kernel.speedup, kernel.speedup_low, kernel.speedup_high),
        "before_s": None if decider is None else decider.before_s,
        "after_s": kernel.after_s,
        "bytes": kernel.bytes,
        "bytes_per_s": kernel.rate,
        "floor_share": kernel.floor_ratio,
        "error": kernel.error,
        "unfused_error": kernel.error_unfused,
        "places": kernel.places,
        "outcome": "kept" if kernel.kept else f"dropped: {kernel.reason}",
        "replaces": kernel.replaces,
    }


def _decider(kernel: KernelRecord) -> BindingRecord | None:
    """The binding that the numbers of a kernel are of."""
    return next((each for each in kernel.bindings if each.speedup == kernel.speedup), None)


def _binding(each: BindingRecord) -> dict[str, Any]:
    ends = {"before_s": each.before_s, "after_s": each.after_s, "estimated_speedup": each.ceiling}
    ratio = (each.speedup, each.low, each.high)
    return {"sizes": spell(each.sizes) or "its only sizes", "verdict": each.verdict, "speedup": ratio, **ends}


def _graphs(evidence: Evidence, report: Report) -> Iterator[Section]:
    """The model as it came beside the model with the kernels that are kept."""
    if evidence.original is None or evidence.partition is None or evidence.plan is None or evidence.after is None:
        return
    known = {kernel.name: _node(kernel) for kernel in report.kernels}
    extra = {
        position: {"facts": known[kernel.operator]["facts"], "lines": known[kernel.operator]["lines"][:1]}
        for kernel in evidence.plan.kernels
        for group in kernel.groups
        for position in group.positions
        if kernel.operator in known
    }

    def show(position: int, node: Node) -> Node:
        own = known.get(node.get("group", ""))
        if own is None:
            return node
        lines, facts = [*node["lines"], *own["lines"]], node["facts"] | own["facts"]
        return {**node, "lines": lines, "facts": facts, "tone": own["tone"], "source": node["group"]}

    before = plan_drawing("Before", evidence.original, evidence.partition.cuts, evidence.plan, extra)
    yield graphs("The graph before and after", (before, model_drawing("After", evidence.after, show)))


def _node(kernel: KernelRecord) -> Node:
    """The lines and facts of a kernel on a graph."""
    decider = _decider(kernel)
    times = " -> ".join(map(spell_s, filter(None, (decider.before_s, decider.after_s)))) if decider else ""
    verdict = f"{kernel.verdict.value} {spell_speedup(kernel)}" if kernel.verdict else ""
    moved = "" if kernel.bytes is None else spell_bytes(kernel.bytes)
    error = "" if kernel.error is None else f"error {spell_error(kernel.error)}"
    unfused = "" if kernel.error_unfused is None else f", unfused {spell_error(kernel.error_unfused)}"
    facts = {"time": times, "verdict": verdict, "bytes": moved, "error": error + unfused, "not kept": kernel.reason}
    lines = [each for each in (times, verdict, ", ".join(filter(None, (moved, error)))) if each]
    return {"lines": lines, "facts": facts, "tone": STATES[kernel.verdict] if kernel.verdict else ""}


def _times(one: Candidate, evidence: Evidence) -> Iterator[SizedTime]:
    """The times of a kernel at each binding of the sizes; its size is the bytes that move."""
    known = evidence.original.imported.sizes if evidence.original else {}
    work = None if one.planned.by_hand else flops(one.planned.groups[0].kernel)
    for each in one.timings:
        moved = None if each.traffic is None else each.traffic.bytes
        names = {name: known.get(name, name) for name in work.names} if work else {}
        fits = work is not None and each.sizes.keys() >= set(names.values())
        count = float(work.evaluate({name: each.sizes[own] for name, own in names.items()})) if work and fits else None
        low_s, high_s = each.hot.quantiles_s(0.1, 0.9)[1]
        yield SizedTime(moved or 0, each.hot.after_median_s, low_s, high_s, moved, count)
