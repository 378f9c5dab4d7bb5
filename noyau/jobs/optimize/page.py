"""The page of an optimisation: verdict, graph before and after, kernels with their evidence, and plots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from noyau.compiler.partition.costs import flops
from noyau.hosts.onnxruntime.inputs import spell
from noyau.jobs.optimize.candidate import Candidate
from noyau.jobs.optimize.record import BindingRecord, Evidence, KernelRecord, Report
from noyau.jobs.optimize.render import header, replaced, spell_error, spell_ratio, spell_speedup, summary
from noyau.jobs.page.document import (
    Cell,
    Column,
    Fact,
    Graphs,
    Lines,
    Node,
    Page,
    Plot,
    Section,
    Table,
    at,
    interval,
)
from noyau.jobs.page.document import Verdict as Headline
from noyau.jobs.page.evidence import error_plot, source_of
from noyau.jobs.page.onnx_graphs import model_drawing, plan_drawing
from noyau.jobs.page.plots import SizedTime, rate_plot, roofline
from noyau.jobs.profile.tables import spell_bytes
from noyau.jobs.report.text import WIDE, show_of
from noyau.text import printable
from noyau.timing.verdict import Verdict, spell_s

MOST_NAMES = 40  # of nodes after a reason
STATES = {Verdict.FASTER: "good", Verdict.SLOWER: "bad", Verdict.AMBIGUOUS: "doubt", Verdict.SAME: "plain"}


def page(report: Report) -> Page:
    """The page of a report."""
    show = show_of(ascii_only=False)
    head, *rest = (line.plain.strip() for line in summary(report, WIDE, show))
    facts = (line.plain.strip() for line in header(report, WIDE, show))
    state = STATES[report.end_to_end.verdict] if report.end_to_end.verdict else "plain"
    if report.doubts:
        state = "doubt"
    sections: list[Section] = [
        Headline(head, state, tuple(rest), tuple(zip(("model", "machine"), facts, strict=False))),
        *(_graphs(report.evidence, report) if report.evidence else ()),
        _kernels(report),
        _bindings("The whole model at each size", report.end_to_end.bindings),
        *_plots(report),
        _not_fused(report),
        Lines("Graphs", tuple(f"{graph.kind}: {graph.whole}" for graph in report.graphs)),
        Lines("Inputs and notes", report.inputs),
    ]
    candidates = report.evidence.candidates if report.evidence else ()
    sources = tuple(source_of(each.planned, each.evidence, each.certificate) for each in candidates)
    return Page(printable(report.model), "optimize", tuple(sections), sources)


def _kernels(report: Report) -> Table:
    columns = (
        Column("kernel", "source"),
        Column("verdict", "verdict"),
        Column("speed-up", "interval", "time before over time after, with its 95 % interval; 1 is no change"),
        Column("before", hint="median time of the operators that it replaces"),
        Column("after", hint="median time of the kernel"),
        Column("bytes", hint="what a call must move"),
        Column("GB/s", hint="those bytes over the time"),
        Column("floor", hint="the time of a copy of as many bytes over that of the kernel: 100 % is as fast as can be"),
        Column("error", hint="worst against float64, over the largest value"),
        Column("unfused error", hint="the same of the operators as they were"),
        Column("places", hint="how often it is in the model"),
        Column("outcome", "text"),
        Column("replaces", "text"),
    )
    rows = []
    for kernel in report.kernels:
        low, high = kernel.speedup_low, kernel.speedup_high
        decider = _decider(kernel)
        rows.append(
            (
                kernel.name,
                kernel.verdict.value if kernel.verdict else "-",
                interval(spell_speedup(kernel), kernel.speedup, low, high),
                _number(None if decider is None else decider.before_s, spell_s),
                _number(kernel.after_s, spell_s),
                _number(kernel.bytes, lambda size: spell_bytes(int(size))),
                _number(kernel.rate, lambda rate: f"{rate * 1e-9:.3g}"),
                _number(kernel.floor_ratio, lambda share: f"{share:.0%}"),
                _number(kernel.error, spell_error),
                _number(kernel.error_unfused, spell_error),
                at(str(kernel.places), kernel.places),
                "kept" if kernel.kept else f"dropped: {kernel.reason}" if kernel.reason else "dropped",
                replaced(kernel.replaces, printable),
            )
        )
    return Table("Kernels", columns, tuple(rows), "Click a kernel for its source and certificate.")


def _decider(kernel: KernelRecord) -> BindingRecord | None:
    """The binding that the numbers of a kernel are of."""
    return next((each for each in kernel.bindings if each.speedup == kernel.speedup), None)


def _number(value: float | None, spell: Callable[[float], str]) -> Cell:
    return at("-" if value is None else spell(value), value)


def _bindings(title: str, bindings: Sequence[BindingRecord]) -> Table:
    columns = (
        Column("sizes", "text"),
        Column("verdict", "verdict"),
        Column("speed-up", "interval"),
        Column("before"),
        Column("after"),
        Column("estimate", hint="about what fusing could gain there: every kernel at its floor"),
    )
    rows = [
        (
            spell(each.sizes) or "its only sizes",
            each.verdict.value,
            interval(spell_ratio(each.speedup), each.speedup, each.low, each.high),
            _number(each.before_s, spell_s),
            _number(each.after_s, spell_s),
            _number(each.ceiling, spell_ratio),
        )
        for each in bindings
    ]
    return Table(title, columns, tuple(rows))


def _graphs(evidence: Evidence, report: Report) -> Iterator[Graphs]:
    """The model as it came beside the model with the kernels that are kept."""
    if evidence.original is None or evidence.partition is None or evidence.plan is None or evidence.after is None:
        return
    records = {kernel.name: kernel for kernel in report.kernels}
    extra = {
        position: _line_of(records[kernel.operator], len(group.positions))
        for kernel in evidence.plan.kernels
        for group in kernel.groups
        for position in group.positions
        if kernel.operator in records
    }
    before = plan_drawing("Before", evidence.original, evidence.partition, evidence.plan, extra)
    after = model_drawing("After", evidence.after, lambda name, node: _fused_node(records.get(name), node))
    note = "A colour is a kernel. A dashed edge is a cut between two of them: choose its ends to read why."
    yield Graphs("The graph before and after", (before, after), note)


def _line_of(kernel: KernelRecord, nodes: int) -> tuple[tuple[str, ...], tuple[Fact, ...]]:
    """A line and facts of a node that a kernel replaces."""
    decider = _decider(kernel)
    before = "" if decider is None or decider.before_s is None else f"{spell_s(decider.before_s)} for {nodes}"
    return ((before,) if before else ()), _facts(kernel)


def _facts(kernel: KernelRecord) -> tuple[Fact, ...]:
    """What is known of a kernel, in words."""
    decider = _decider(kernel)
    times = () if decider is None else filter(None, (decider.before_s, decider.after_s))
    verdict = "" if kernel.verdict is None else f"{kernel.verdict.value} {spell_speedup(kernel)}"
    beside = "" if kernel.error_unfused is None else f", unfused {spell_error(kernel.error_unfused)}"
    facts = {
        "time": " -> ".join(map(spell_s, times)),
        "verdict": verdict,
        "bytes": "" if kernel.bytes is None else spell_bytes(kernel.bytes),
        "error": "" if kernel.error is None else f"{spell_error(kernel.error)}{beside}",
        "kept": "" if kernel.kept else f"no: {kernel.reason}",
    }
    return tuple((name, text) for name, text in facts.items() if text)


def _fused_node(kernel: KernelRecord | None, node: Node) -> Node:
    if kernel is None:
        return node
    facts = dict(_facts(kernel))
    lines = [facts.get("time", ""), facts.get("verdict", ""), _both(facts.get("bytes"), kernel.error)]
    tone = STATES[kernel.verdict] if kernel.verdict else ""
    return replace(
        node,
        lines=(*node.lines, *filter(None, lines)),
        tone=tone,
        facts=(*node.facts, *facts.items(), ("replaces", replaced(kernel.replaces, printable))),
        source=kernel.name,
    )


def _both(size: str | None, error: float | None) -> str:
    return ", ".join(filter(None, [size, "" if error is None else f"error {spell_error(error)}"]))


def _plots(report: Report) -> Iterator[Plot]:
    """Kernels against what this machine can do, and how exact they are."""
    candidates = report.evidence.candidates if report.evidence else ()
    sweeps = [(one.planned.operator, list(_times(one, report.evidence))) for one in candidates]
    yield rate_plot("Rates of the kernels, and of this machine", sweeps)
    yield roofline("Roofline", sweeps)
    yield error_plot((one.planned.operator, one.certificate) for one in candidates)


def _times(one: Candidate, evidence: Evidence | None) -> Iterator[SizedTime]:
    """The kernel at each binding of the sizes."""
    known = evidence.original.imported.sizes if evidence and evidence.original else {}
    for each in one.timings:
        moved = None if each.traffic is None else float(each.traffic.bytes)
        low_s, high_s = each.hot.quantiles_s(0.1, 0.9)[1]
        work = None if one.planned.by_hand else flops(one.planned.groups[0].kernel)
        sizes = {} if work is None else {name: each.sizes.get(known.get(name, name)) for name in work.names}
        numbers = {name: size for name, size in sizes.items() if size is not None}
        count = float(work.evaluate(numbers)) if work is not None and len(numbers) == len(sizes) else None
        yield SizedTime(moved or 0.0, each.hot.after_median_s, low_s, high_s, moved, count)


def _not_fused(report: Report) -> Table:
    columns = (Column("nodes"), Column("reason", "text"), Column("which", "text"))
    rows = [(at(str(len(each.nodes)), len(each.nodes)), each.reason, _few(each.nodes)) for each in report.not_fused]
    return Table("Not fused", columns, tuple(rows))


def _few(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    rest = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(map(printable, names[:MOST_NAMES])) + rest
