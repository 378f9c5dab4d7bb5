"""A report as text and as a page: the whole model, the estimated gain of fusing, kernels, and the nodes not fused.

Names come from model files: they are never read as markup, and unprintable characters are escaped."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from noyau.compiler.partition.costs import flops
from noyau.hosts.onnxruntime.inputs import spell
from noyau.jobs.optimize.pipeline import NOT_BUILT, Candidate
from noyau.jobs.optimize.record import BindingRecord, Evidence, KernelRecord, ProductRecord, Report
from noyau.jobs.page import document
from noyau.jobs.page.document import Node, Page, Section, SizedTime
from noyau.jobs.report import text as report_text
from noyau.jobs.report.text import WIDE, Show, TableRow, hanging, list_lines, shorten, show_of, spell_bytes, table
from noyau.text import collect, count_text, fields_json, printable, several
from noyau.timing.verdict import Verdict, spell_s

_STYLES = {Verdict.FASTER: "green", Verdict.SAME: "default", Verdict.SLOWER: "red", Verdict.AMBIGUOUS: "yellow"}
_LONGEST_NAME = 36
_MOST_REASONS = 12
_MOST_REPLACED = 12
_LEGEND = (
    "speed-up: the time of a call before over that after, the least and the greatest of all sizes, or [95 % interval]. "
    "floor: the time in which this machine copies as many bytes as must move, over that of the kernel; 100 % is the "
    "limit. GB/s: those bytes in a second. error: the largest against float64, over the largest value; unfused: that "
    "of the operators before. The beginning of a name is enough for --only, --drop and --kernel."
)
_SIZES_LEGEND = (
    "before, after: medians of a run. p50, p90, p99: what so many of a hundred runs with the kernels do not exceed "
    "(of runs below 0.2 ms: means of several). runs/s: one after the other. could: an estimate of what fusing can gain."
)
_NAMES = {100: 36, 70: 24, 0: 20}  # letters of a kernel's name, by the least columns of the terminal
_NO_KERNEL = "No kernel: nothing in this model could be fused."
_FAR = 1e-2  # of the largest value: more than rounding, except in models that magnify it
STATES = {Verdict.FASTER: "good", Verdict.SLOWER: "bad", Verdict.AMBIGUOUS: "doubt", Verdict.SAME: "plain"}


def render(report: Report, width: int, *, ascii_only: bool = False) -> Iterator[RenderableType]:
    """The report in reading order, for a terminal of `width` columns (80 or more look best)."""
    show = show_of(ascii_only=ascii_only)
    yield from summary(report, width, show)
    for line in report.written.splitlines():
        yield Text(line, no_wrap=True, overflow="ignore")  # whole paths, which users paste
    yield from _at_sizes(report.end_to_end.bindings, width, show)
    yield Text()
    yield from header(report, width, show)
    for part in (_kernels, _weights, _not_fused):
        yield from part(report, width, show)
    yield from (Text(), Text("Graphs", style="bold")) if report.graphs else ()
    for graph in report.graphs:
        yield from hanging(show(f"{graph.kind}: {graph.whole}"), width, "    ", "      ")
        yield from graph.wall.renderables(width, ascii_only=ascii_only) if graph.wall else ()
    yield from list_lines("Inputs", [*map(show, report.inputs)], width)


def summary(report: Report, width: int, show: Show) -> Iterator[Text]:
    """The whole model, the estimated gain of fusing, and what makes the times doubtful."""
    yield from hanging(_whole(report, show), width, rest="  ")
    if report.ceiling is not None:
        reached = report.end_to_end.speedup
        message = "" if reached is None else f"; {spell_ratio(reached)} is reached"
        if reached is not None and reached >= report.ceiling:
            message += ": more than the estimate, which is of the kernels alone"
        yield from hanging(f"Fusing could gain about {spell_ratio(report.ceiling)} here{message}.", width, rest="  ")
    if unbuilt := [kernel.reason for kernel in report.kernels if kernel.reason.startswith(NOT_BUILT)]:
        message = f"{len(unbuilt)} of {several(len(report.kernels), 'kernel')} {unbuilt[0]}."
        yield from hanging(show(message), width, rest="  ", style="yellow")
    if report.doubts:
        yield from hanging(show(report.doubts[0].upper() + report.doubts[1:] + "."), width, rest="  ", style="yellow")


def header(report: Report, width: int, show: Show) -> Iterator[Text]:
    counts = f": {report.nodes_before} nodes before, {report.nodes_after} after"
    kernels = f"; {len(report.kept)} of {several(len(report.kernels), 'kernel')} kept" if report.kernels else ""
    yield from hanging(Text.assemble((show(report.model), "bold"), counts, kernels), width, rest="  ")
    machine = report.machine
    runtimes = (f"{each} {machine.versions[each]}" for each in ("torch", "onnxruntime") if each in machine.versions)
    facts = [f"{machine.cpu}, {several(machine.cores, 'core')}, {machine.level}", machine.compiler, next(runtimes, "")]
    yield from hanging(show("; ".join(filter(None, facts))), width, rest="  ", style="dim")


def headline(report: Report) -> str:
    return next(summary(report, WIDE, printable)).plain


def _kernels(report: Report, width: int, show: Show) -> Iterator[Text]:
    """A line for each kernel and the legend; then the operators that each replaces, and why it is dropped."""
    if not (kernels := report.kernels):
        return
    yield Text()
    longest = next(most for least, most in _NAMES.items() if width >= least)
    names = report_text.beginnings([show(kernel.name) for kernel in kernels], longest)
    headings = ("places", "verdict", "speed-up", "GB/s", "floor", "error", "unfused", "")
    rows = [TableRow(name, _cells(kernel)) for name, kernel in zip(names, kernels, strict=True)]
    yield from table("kernel", headings, rows, width, ("unfused", "places", "GB/s", "error", "floor"), longest)
    yield from hanging(_LEGEND, width, rest="  ", style="dim")
    yield Text()
    yield Text("What they replace", style="bold")
    for kernel in kernels:
        yield from hanging(f"{show(kernel.name)}: {operators_text(kernel.replaces, show)}", width, "    ", "      ")
        if kernel.reason:
            message = f"{'kept' if kernel.kept else 'dropped'}: {show(kernel.reason)}"
            # A kernel without a timing is wrong, or cannot be built.
            style = "yellow" if kernel.verdict is not None or kernel.kept else "red"
            yield from hanging(message, width, "      ", "        ", style)


def _cells(kernel: KernelRecord) -> tuple[str | Text, ...]:
    return (
        str(kernel.places),
        Text(kernel.verdict.value, _STYLES[kernel.verdict]) if kernel.verdict else "-",
        spell_speedup(kernel),
        "-" if kernel.rate is None else f"{kernel.rate * 1e-9:.3g}",
        "-" if kernel.floor_ratio is None else f"{100 * kernel.floor_ratio:.0f}%",
        *("-" if error is None else spell_error(error) for error in (kernel.error, kernel.error_unfused)),
        Text("kept", "green") if kernel.kept else Text("dropped", "yellow"),
    )


def _at_sizes(bindings: Sequence[BindingRecord], width: int, show: Show) -> Iterator[Text]:
    """A line for the whole model at each of its sizes, and the legend."""
    rows = [TableRow(show(spell(each.sizes)) or "its only sizes", tuple(_size_cells(each))) for each in bindings]
    if rows:
        yield Text()
        headings = ("before", "after", "verdict", "could", "p50", "p90", "p99", "runs/s")
        yield from table("the whole model at", headings, rows, width, ("p50", "p90", "could", "runs/s", "p99"), 24)
        yield from hanging(_SIZES_LEGEND, width, rest="  ", style="dim")


def _size_cells(each: BindingRecord) -> Iterator[str | Text]:
    yield from ("-" if time_s is None else spell_s(time_s) for time_s in (each.before_s, each.after_s))
    yield Text(f"{each.verdict.value} {spell_ratio(each.speedup)}", _STYLES[each.verdict])
    yield "-" if each.ceiling is None else spell_ratio(each.ceiling)
    after = each.latency_after
    yield from map(spell_s, (after.p50_s, after.p90_s, after.p99_s)) if after else ("-",) * 3
    yield count_text(after.calls_per_s) if after else "-"


def _weights(report: Report, width: int, show: Show) -> Iterator[Text]:
    """The agreement with float32, and each product with the form of its weights, or why it is still in float32."""
    if (weights := report.weights) is None:
        return
    yield Text()
    head = f"Weights in few bits ({weights.weights}, {weights.budget})"
    if weights.changed:
        tokens = f"; {weights.flips} of {weights.rows} tokens flip" if weights.rows else ""
        margin = "" if weights.margin is None else f", the least margin is {spell_error(weights.margin)} of the largest"
        beyond = f"; of {weights.rows_beyond} further tokens {weights.flips_beyond} flip" if weights.rows_beyond else ""
        moved = f"the outputs move by {spell_error(weights.error)} of the largest{tokens}{margin}{beyond}"
        message = f"{head}: {len(weights.changed)} of {several(len(weights.products), 'product')}; {moved}."
    else:
        message = f"{head}: none; {show(weights.reason or 'no product of a constant f32 matrix of 64 KiB or more')}."
    yield from hanging(message, width, rest="  ", style="default" if weights.changed else "yellow")
    rows = [TableRow(show(each.name), _product(each), show(each.reason)) for each in weights.products]
    yield from table("product", ("shape", "weights", "speed-up", "error (f32)", "x 30", "x 1000"), rows, width)


def _product(product: ProductRecord) -> tuple[str, ...]:
    chosen, shape = product.chosen, " x ".join(map(str, product.shape))
    if chosen is None:
        return (shape, "f32", *[""] * 4)
    speeds = sorted(each.speedup for each in chosen.bindings)
    ratios = " to ".join(dict.fromkeys(map(spell_ratio, (speeds[0], speeds[-1]))))
    pairs = zip(chosen.errors, product.errors_float32, strict=True)
    return (shape, chosen.variant, ratios, *(f"{spell_error(own)} ({spell_error(f32)})" for own, f32 in pairs))


def _whole(report: Report, show: Show) -> Text:
    """The times of the whole model, or why there are none."""
    whole = report.end_to_end
    if whole.before_s is None or whole.after_s is None:
        reason = f": {show(whole.reason)}" if whole.reason else ""
        untimed = "not timed" if report.is_changed else "as it was, for no kernel was kept"
        message = f"The whole model: {untimed}{reason}." if report.kernels else _NO_KERNEL
        return Text(message, "yellow" if reason else "default")
    line = Text(f"The whole model: {spell_s(whole.before_s)} -> {spell_s(whole.after_s)}, ")
    if whole.verdict is not None:
        line.append(whole.verdict.value, style=_STYLES[whole.verdict])
    line.append("" if whole.speedup is None else f" {spell_ratio(whole.speedup)}")
    return line.append(_apart(whole.apart), style="yellow" if (whole.apart or 0.0) > _FAR else "default")


def _apart(apart: float | None) -> str:
    if apart is None:
        return ""
    if not math.isfinite(apart):
        return "; its outputs are not those it had, beyond rounding"
    return f"; its outputs are within {spell_error(apart)} of the largest" if apart else "; its outputs keep every bit"


def _not_fused(report: Report, width: int, show: Show) -> Iterator[Text]:
    """The reasons, each with its number of nodes and the first of them; the most frequent first."""
    if not report.not_fused:
        return
    yield Text()
    by_reason = collect((each.reason, node) for each in report.not_fused for node in each.nodes)
    ordered = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    yield Text.assemble(("Not fused", "bold"), f": {several(sum(len(nodes) for _, nodes in ordered), 'node')}")
    for reason, nodes in ordered[:_MOST_REASONS]:
        yield from hanging(show(reason), width, f"{len(nodes):>5}  ")
        yield Text(" " * 7 + _few(nodes, width - 7, show), style="dim")
    if len(ordered) > _MOST_REASONS:
        rest = sum(len(nodes) for _, nodes in ordered[_MOST_REASONS:])
        yield Text(f"{rest:>5}  for {several(len(ordered) - _MOST_REASONS, 'more reason')}; --json has all")


def _few(names: Sequence[str], width: int, show: Show) -> str:
    """As many names as fit into a line of `width` columns, and how many more there are."""
    first: list[str] = []
    for place, name in enumerate(names, 1):
        rest = f" and {len(names) - place} more" if place < len(names) else ""
        short = shorten(show(name), _LONGEST_NAME)
        if first and cell_len(", ".join([*first, short]) + rest) > width:
            return ", ".join(first) + f" and {len(names) - place + 1} more"
        first.append(short)
    return ", ".join(first)


def operators_text(operators: Sequence[str], show: Show) -> str:
    """`7 operators: Pow, ReduceMean, Add, ...`"""
    shown = [shorten(show(name), _LONGEST_NAME) for name in operators[:_MOST_REPLACED]]
    rest = ["..."] if len(operators) > _MOST_REPLACED else []
    return f"{several(len(operators), 'operator')}: {', '.join([*shown, *rest])}"


def spell_speedup(kernel: KernelRecord) -> str:
    results = [binding.speedup for binding in kernel.bindings]
    if kernel.speedup is not None and len(results) > 1:
        return f"{spell_ratio(min(results))} to {spell_ratio(max(results))}"
    if kernel.speedup is None or kernel.speedup_low is None or kernel.speedup_high is None:
        return "-" if kernel.speedup is None else spell_ratio(kernel.speedup)
    low, high = (spell_ratio(each)[:-1] for each in (kernel.speedup_low, kernel.speedup_high))
    return f"{spell_ratio(kernel.speedup)} [{low}, {high}]"


def spell_ratio(value: float) -> str:
    return f"{value:.2f}x" if value < 99.995 else f"{value:.0f}x"


def spell_error(value: float) -> str:
    """`1.2e-7`"""
    return f"{value:.2g}".replace("e-0", "e-")


def page(report: Report) -> Page:
    _, *rest = (line.plain.strip() for line in summary(report, WIDE, printable))
    facts = dict(zip(("model", "machine"), (line.plain for line in header(report, WIDE, printable)), strict=False))
    verdict, evidence = report.end_to_end.verdict, report.evidence or Evidence(())
    state = "doubt" if report.doubts else STATES[verdict] if verdict else "plain"
    times = {one.planned.operator: list(_times(one, evidence)) for one in evidence.candidates}
    products = report.weights.products if report.weights else ()
    weights = ({"product": e.name, "weights": e.variant or "f32", "reason": e.reason} for e in products)
    left = ({"nodes": len(each.nodes), "reason": each.reason, "which": each.nodes} for each in report.not_fused)
    sections: list[Section] = [
        document.summary(headline(report), state, rest, facts),
        *_graphs(evidence, report),
        document.table("Kernels", map(_row, report.kernels), "Choose a kernel for its source and certificate."),
        document.table("The whole model at each size", map(_binding, report.end_to_end.bindings)),
        document.sweeps("Kernels beside this machine", "", times),
        document.table("Weights in few bits", weights),
        document.table("Not fused", left),
        document.lines("Graphs", (f"{graph.kind}: {graph.whole}" for graph in report.graphs)),
        document.lines("Inputs and notes", report.inputs),
    ]
    tried = ((each.planned, each.evidence, each.certificate) for each in evidence.candidates)
    sources = {each[0].operator: document.source_of(*each) for each in tried}
    return Page(printable(report.model), "optimize", sections, sources)


def _row(kernel: KernelRecord) -> dict[str, Any]:
    before_s, after_s = _times_s(kernel)
    return {
        "kernel": kernel.name,
        "verdict": kernel.verdict or "-",
        "speedup": (kernel.speedup, kernel.speedup_low, kernel.speedup_high),
        "before_s": before_s,
        "after_s": after_s or kernel.after_s,
        "bytes": kernel.bytes,
        "bytes_per_s": kernel.rate,
        "floor_share": kernel.floor_ratio,
        "error": kernel.error,
        "unfused_error": kernel.error_unfused,
        "places": kernel.places,
        "outcome": "kept" if kernel.kept else f"dropped: {kernel.reason}",
        "replaces": kernel.replaces,
    }


def _times_s(kernel: KernelRecord) -> tuple[float | None, float | None]:
    """The seconds before and after, at the binding that the numbers of the kernel's record come from."""
    times_s = ((each.before_s, each.after_s) for each in kernel.bindings if each.speedup == kernel.speedup)
    return next(times_s, (None, None))


def _binding(each: BindingRecord) -> dict[str, Any]:
    ends = {"before_s": each.before_s, "after_s": each.after_s, "estimated_speedup": each.ceiling}
    ratio = (each.speedup, each.low, each.high)
    ends |= {} if each.latency_after is None else fields_json(each.latency_after, without=("calls",))
    return {"sizes": spell(each.sizes) or "its only sizes", "verdict": each.verdict, "speedup": ratio, **ends}


def _graphs(evidence: Evidence, report: Report) -> Iterator[Section]:
    """The original model beside the model with the kept kernels."""
    for kind, drawings in evidence.drawings.items():
        yield document.graphs(f"The {kind} graph before and after", drawings)
    if evidence.original is None or evidence.partition is None or evidence.plan is None or evidence.after is None:
        return
    from noyau.jobs.page.graphs import model_drawing, plan_drawing  # imports onnx, which the text does not need

    known = {kernel.name: _node(kernel) for kernel in report.kernels}
    drawn = [(known[each.operator], each.groups) for each in evidence.plan.kernels if each.operator in known]
    places = ((node, position) for node, groups in drawn for group in groups for position in group.positions)
    extra = {position: {"facts": node["facts"], "lines": node["lines"][:1]} for node, position in places}

    def show(position: int, node: Node) -> Node:
        if (own := known.get(node.get("group", ""))) is None:
            return node
        lines, facts = [*node["lines"], *own["lines"]], node["facts"] | own["facts"]
        return {**node, "lines": lines, "facts": facts, "tone": own["tone"], "source": node["group"]}

    before = plan_drawing("Before", evidence.original, evidence.partition.cuts, evidence.plan, extra)
    yield document.graphs("The graph before and after", (before, model_drawing("After", evidence.after, show)))


def _node(kernel: KernelRecord) -> Node:
    """The lines and facts of a kernel on a graph."""
    times = " -> ".join(map(spell_s, filter(None, _times_s(kernel))))
    verdict = f"{kernel.verdict.value} {spell_speedup(kernel)}" if kernel.verdict else ""
    moved = "" if kernel.bytes is None else spell_bytes(kernel.bytes)
    error = "" if kernel.error is None else f"error {spell_error(kernel.error)}"
    unfused = "" if kernel.error_unfused is None else f", unfused {spell_error(kernel.error_unfused)}"
    facts = {"time": times, "verdict": verdict, "bytes": moved, "error": error + unfused, "not kept": kernel.reason}
    lines = [each for each in (times, verdict, ", ".join(filter(None, (moved, error)))) if each]
    return {"lines": lines, "facts": facts, "tone": STATES[kernel.verdict] if kernel.verdict else ""}


def _times(one: Candidate, evidence: Evidence) -> Iterator[SizedTime]:
    """The times of a kernel at each binding of the sizes; the x axis is the bytes that move."""
    known = evidence.original.imported.sizes if evidence.original else {}
    work = None if one.planned.by_hand else flops(one.planned.groups[0].kernel)
    for each in one.timings:
        moved = None if each.traffic is None else each.traffic.bytes
        names = {name: known.get(name, name) for name in work.names} if work else {}
        fits = work is not None and each.sizes.keys() >= set(names.values())
        count = float(work.evaluate({name: each.sizes[own] for name, own in names.items()})) if work and fits else None
        low_s, high_s = each.hot.quantiles_s(0.1, 0.9)[1]
        yield SizedTime(moved or 0, each.hot.after_median_s, low_s, high_s, moved, count)
