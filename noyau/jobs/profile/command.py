"""The command `noyau profile`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from noyau.errors import InputError
from noyau.jobs import command_line
from noyau.jobs.command_line import sizes_of

if TYPE_CHECKING:
    from noyau.jobs.profile.record import Profile, ScriptProfile, Wall

_TAKES = {  # what each kind of target takes
    "model": ("inputs", "dim", "between", "threads", "top"),
    "module": (),
    "report": ("top",),
    "script": ("arguments", "time", "native", "top"),
}
_REPORTS = (".sqlite", ".csv", ".nsys-rep", ".qdrep", ".ncu-rep")  # reports and exports of Nsight


def _declare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    others = "a torch module, whose inputs the file names `inputs`; or a script or notebook, which runs as it is"
    what = f"the model, which runs in onnxruntime, nothing compiled; {others}; or an exported report of Nsight"
    targets = "MODEL.onnx|FILE.py::MODULE|SCRIPT.py|BOOK.ipynb|REPORT.sqlite|REPORT.csv"
    add("model", type=command_line.target_of, metavar=targets, help=what)
    add("arguments", nargs="*", default=[], metavar="ARGS", help="arguments of a script; its own options go after --")
    add("--trace", type=Path, metavar="F.json", help="write a timeline here, which Perfetto opens (ui.perfetto.dev)")
    sizes = "or with several in turn: sequence=1,128,1024 (default: a usual one); can be repeated"
    command_line.declare_inputs(parser, "run", sizes)
    add("--between", metavar="A,B:C", help="look at the path from the values A and B to C alone")
    add("--threads", type=int, metavar="N", help="threads of onnxruntime (default: 1; 0: its choice)")
    add("--top", type=int, metavar="N", help="rows of a table (default: 12)")
    add("--time", type=float, metavar="S", help="of a script: end it after S seconds, and report what was seen")
    native = "of a script: sample it with py-spy, native functions and all threads (default: where py-spy is there)"
    add("--native", action=argparse.BooleanOptionalAction, default=None, help=native)
    command_line.declare_record(parser, "node by node", page=True)


def _run(arguments: argparse.Namespace) -> int:
    place, _, module = arguments.model.partition("::")
    path = Path(place)
    command_line.require_record_places(path, arguments.json, arguments.html, arguments.trace)
    if path.suffix == ".json":
        raise InputError(f"{path} is no model and no script; a timeline, of noyau or another tool, opens in Perfetto")
    kinds = {".py": "module" if module else "script", ".ipynb": "script", **dict.fromkeys(_REPORTS, "report")}
    kind = kinds.get(path.suffix, "model")
    for name in sorted({*_TAKES["model"], *_TAKES["script"]}.difference(_TAKES[kind])):
        if getattr(arguments, name) not in (None, []):
            raise InputError(f"{place} is a {kind}: it takes no {'' if name == 'arguments' else '--'}{name}")
    command_line.require_limit("--time", arguments.time)
    arguments.top = 12 if arguments.top is None else arguments.top
    if arguments.top < 1:
        raise InputError(f"--top {arguments.top} is no number of rows: give 1 or more")
    if kind == "report":
        from noyau.jobs.profile.nsight import profile_report

        return _finish(arguments, profile_report(path, arguments.top), 0)
    if kind == "script":
        from noyau.jobs.profile.script import profile_script

        time_s = math.inf if arguments.time is None else arguments.time
        ran = profile_script(path, arguments.arguments, arguments.top, time_s=time_s, native=arguments.native)
        return _finish(arguments, ran, ran.status)
    with command_line.progress(quiet=arguments.quiet) as say:
        result = _profile(arguments, path, say)
    return _finish(arguments, result, 0)


def _profile(arguments: argparse.Namespace, path: Path, say: Callable[[str], None]) -> Profile | Wall:
    """The profile of a model in onnxruntime, or of a call of a torch module of a file."""
    if path.suffix == ".py":
        from noyau.jobs.optimize.torch import job
        from noyau.ops.op_files import load_op_or_module

        say(f"loading {arguments.model}")
        target = load_op_or_module(arguments.model)
        if not isinstance(target, tuple):
            raise InputError(f"{arguments.model} is an op: noyau bench {arguments.model} times its kernels")
        say("running it")
        wall: Wall = job("explain").profile(*target, timeline=arguments.trace is not None)
        return replace(wall, name=Path(arguments.model).name)
    from noyau.jobs.profile.run import ProfileOptions, profile

    sizes = sizes_of(arguments.dim)
    threads = 1 if arguments.threads is None else arguments.threads
    wishes = ProfileOptions(sizes, arguments.inputs, threads, arguments.between, top=arguments.top)
    return profile(path, wishes, say)


def _finish(arguments: argparse.Namespace, result: Profile | Wall | ScriptProfile, status: int) -> int:
    """Write the record, the page and the timeline, if requested, and print the profile."""
    from noyau.jobs.profile.timeline import write_trace
    from noyau.jobs.report.text import print_record

    result.write_where(arguments.json, arguments.html)
    if arguments.trace is not None:
        write_trace(result.events, arguments.trace)
    print_record(result, quiet=arguments.quiet)
    if arguments.trace is not None and not arguments.quiet:
        print(f"Wrote {command_line.plain(str(arguments.trace))}: open it at https://ui.perfetto.dev")
    return status


COMMAND = command_line.Command("where the time of a model, module or script goes", _declare, _run)
