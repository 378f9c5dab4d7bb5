"""The command `noyau bench`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from noyau.errors import InputError
from noyau.jobs import command_line
from noyau.jobs.command_line import Command, declare_record, progress, require_record_places, share_of, sizes_of

if TYPE_CHECKING:
    from noyau.jobs.bench.baseline.record import ChangeRecord
    from noyau.jobs.bench.record import BenchRecord


def _declare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    what = "an op, of which the reference and every kernel are timed, or functions, the first of which is right"
    add("target", type=command_line.target_of, metavar="FILE.py[::OP or ::f,g]", help=what)
    sweep = "a sweep: n=1e3:1e8:log (one a decade, or K of them), n=0:100:lin:5 (default: about a million cells)"
    sizes = f"time with this size, with several in turn, or with {sweep}; can be repeated"
    add("--sizes", action="append", default=[], metavar="NAME=N[,N...]|A:B:log[:K]", help=sizes)
    add("--inputs", type=Path, metavar="F.npz", help="time on these arrays, in the order of the file")
    add("--budget", type=float, default=1.0, metavar="S", help="seconds of timing at each sizes (default: 1)")
    add("--cold", action=argparse.BooleanOptionalAction, default=None, help="on inputs that are in no cache, too")
    place = "cuda, or cuda:1: copy the inputs there and time on it (default: cpu)"
    add("--device", metavar="D", help=place)
    peers = "time these beside: the reference as torch.compile, numexpr and numba run it"
    add("--against", metavar="PEER[,PEER...]", help=peers)
    add("--save", metavar="NAME", help="keep the source texts in .noyau/bench/NAME.json (or a path)")
    saved = "run the saved text beside the present one, in turns; it is a program: name a baseline you trust"
    add("--compare", metavar="NAME", help=saved)
    limit = "with --compare: exit with status 1 where a candidate is certainly slower by more than this (default: 5%%)"
    add("--fail-if-slower", default="5%", metavar="P%", help=limit)
    for kind, what in (("markdown", "a summary for a pull request"), ("junit", "JUnit's XML"), ("csv", "all timings")):
        add(f"--{kind}", type=Path, metavar="F", help=f"write {what} here")
    declare_record(parser, "with every sample", page=True)


def _run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns 0 if every candidate that runs is right and none is slower than the limit, else 1."""
    arguments.sizes = sizes_of(arguments.sizes, "--sizes")  # before slow imports
    from noyau.jobs.bench.baseline.sources import baseline_path
    from noyau.jobs.bench.render import EXPORTS
    from noyau.jobs.report.text import print_record, write_text

    target, file = arguments.target, Path(arguments.target.partition("::")[0])
    exports = {kind: getattr(arguments, kind) for kind in EXPORTS if getattr(arguments, kind) is not None}
    saved = None if arguments.save is None else baseline_path(arguments.save)
    require_record_places(file, arguments.json, arguments.html, saved, *exports.values())
    limit = share_of(arguments.fail_if_slower, "--fail-if-slower")
    command_line.require_limit("--budget", arguments.budget)
    if arguments.compare is not None and (arguments.against or arguments.device or arguments.save or arguments.html):
        problem = "--compare goes without --against, --device, --save and --html"
        raise InputError(f"{problem}: it times what was saved, on this CPU, and --markdown writes its table")
    with progress(quiet=arguments.quiet) as say:
        say(f"reading {target}")
        record = _time(arguments, limit, say)
    for kind, place in exports.items():
        write_text(EXPORTS[kind](record), place)
    if arguments.json is not None:
        record.write(arguments.json)
    if arguments.html is not None:  # a comparison has no page, and was refused above
        cast("BenchRecord", record).save_html(arguments.html)
    print_record(record, quiet=arguments.quiet)
    if arguments.save is not None and not arguments.quiet:
        again = shlex.join(["noyau", "bench", target, "--compare", arguments.save])
        print(f"\nKept as a baseline. After a change: {again}")
    return 0 if record.ok else 1


def _time(arguments: argparse.Namespace, limit: float, say: Callable[[str], None]) -> BenchRecord | ChangeRecord:
    """Run a bench, and save it as a baseline with --save; with --compare, time the baseline's text beside this one."""
    from noyau.jobs.bench.baseline.run import compare, save
    from noyau.jobs.bench.baseline.sources import read_baseline
    from noyau.jobs.bench.peers import named_peers
    from noyau.jobs.bench.run import bench, combinations
    from noyau.jobs.bench.tasks import BenchOptions
    from noyau.ops.op_files import load_ops_or_functions
    from noyau.verify.input_files import read_arrays

    target, sizes = arguments.target, arguments.sizes
    baseline = None if arguments.compare is None else read_baseline(arguments.compare)
    what, maker = load_ops_or_functions(target)
    inputs: Any = maker if arguments.inputs is None else list(read_arrays(arguments.inputs).values())
    if baseline is not None:
        options = BenchOptions(inputs, combinations(sizes), arguments.budget, arguments.cold)
        return compare(baseline, target, what, options, limit=limit, say=say)
    peers = named_peers([] if arguments.against is None else arguments.against.split(","), what)
    how: dict[str, Any] = {"budget_s": arguments.budget, "cold": arguments.cold, "device": arguments.device or ""}
    record = bench(what, inputs, sizes=sizes, peers=peers, say=say, **how)
    if arguments.save is not None:
        save(arguments.save, target, what, record)
    return record


COMMAND = Command("an op's kernels, or functions, timed side by side", _declare, _run)
