"""`noyau profile`: its arguments, and what it does."""

from __future__ import annotations

import argparse
from pathlib import Path

from noyau.errors import InputError
from noyau.jobs import command_line
from noyau.jobs.sizes import sizes_of


def _declare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    what = "the model, which runs in onnxruntime, nothing compiled; or a script, which runs as it is"
    add("model", type=Path, metavar="MODEL.onnx|SCRIPT.py", help=what)
    add("arguments", nargs="*", default=[], metavar="ARGS", help="of a script; its options stand behind --")
    add("--trace", type=Path, metavar="F.json", help="of a script: write its ranges here, a timeline for Perfetto")
    command_line.declare_inputs(
        parser, "run", "or with several in turn: sequence=1,128,1024 (default: a usual one); can be repeated"
    )
    add("--between", metavar="A,B:C", help="look at the path from the values A and B to C alone")
    add("--threads", type=int, default=1, metavar="N", help="threads of onnxruntime (default: 1; 0: as it likes)")
    add("--top", type=int, default=12, metavar="N", help="rows of a table (default: 12)")
    command_line.declare_record(parser, "node by node", page=True)


def _run(arguments: argparse.Namespace) -> int:
    command_line.require_record_places(arguments.model, arguments.json, arguments.html, arguments.trace)
    if arguments.model.suffix == ".py":
        return _run_script(arguments)
    if arguments.trace is not None or arguments.arguments:
        raise InputError(f"{arguments.model} is no script: it takes no --trace and no arguments")
    from noyau.jobs.profile.run import ProfileOptions, profile

    wishes = ProfileOptions(
        sizes_of(arguments.dim), arguments.inputs, arguments.threads, arguments.between, top=arguments.top
    )
    with command_line.progress() as say:
        result = profile(arguments.model, wishes, say)
    result.write_where(arguments.json, arguments.html)
    command_line.print_rich(result)
    return 0


def _run_script(arguments: argparse.Namespace) -> int:
    """The exit status of the script; its profile is printed however it ends."""
    if arguments.html is not None:
        raise InputError(f"{arguments.model} is a script, whose profile has no page: say --json or --trace F.json")
    from noyau.jobs.profile.script import profile_script
    from noyau.jobs.report.text import write_json

    result = profile_script(arguments.model, arguments.arguments, arguments.top)
    if arguments.json is not None:
        result.write(arguments.json)
    if arguments.trace is not None:
        write_json({"traceEvents": list(result.events), "displayTimeUnit": "ms"}, arguments.trace)
    command_line.print_rich(result)
    return result.status


COMMAND = command_line.Command("where a model's time goes", _declare, _run)
