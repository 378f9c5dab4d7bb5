"""`noyau profile`: its arguments, and what it does."""

from __future__ import annotations

import argparse
from pathlib import Path

from noyau.jobs import command_line


def _declare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL.onnx", help="the model; it runs in onnxruntime, nothing is compiled")
    command_line.declare_inputs(
        parser, "run", "or with several in turn: sequence=1,128,1024 (default: a usual one); can be repeated"
    )
    add("--between", metavar="A,B:C", help="look at the path from the values A and B to C alone")
    add("--threads", type=int, default=1, metavar="N", help="threads of onnxruntime (default: 1; 0: as it likes)")
    add("--top", type=int, default=12, metavar="N", help="rows of a table (default: 12)")
    command_line.declare_record(parser, "node by node")


def _run(arguments: argparse.Namespace) -> int:
    from noyau.jobs.profile.run import ProfileOptions, profile

    wishes = ProfileOptions(
        command_line.sizes_of(arguments.dim), arguments.inputs, arguments.threads, arguments.between, top=arguments.top
    )
    for place in filter(None, (arguments.json, arguments.html)):
        command_line.require_place(place, arguments.model)
    with command_line.progress() as say:
        result = profile(arguments.model, wishes, say)
    if arguments.json is not None:
        result.write(arguments.json)
    if arguments.html is not None:
        result.save_html(arguments.html)
    command_line.print_rich(result)
    return 0


COMMAND = command_line.Command("where a model's time goes", _declare, _run)
