"""The command `noyau diff`."""

import argparse
from pathlib import Path

from noyau.jobs import command_line
from noyau.jobs.command_line import sizes_of


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="A.onnx", help="the model that the other one is compared with")
    parser.add_argument("against", type=Path, metavar="B.onnx", help="the other model")
    command_line.declare_inputs(parser, "run both", "or at this one (default: small ones)")
    command_line.declare_record(parser, page=True)


def _run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns 0 if only names differ, else 1."""
    from noyau.jobs.diff.run import diff
    from noyau.jobs.report.text import print_record

    for model in (arguments.model, arguments.against):
        command_line.require_record_places(model, arguments.json, arguments.html)
    with command_line.progress(quiet=arguments.quiet) as say:
        say(f"comparing {arguments.model.name} and {arguments.against.name}")
        result = diff(arguments.model, arguments.against, dims=sizes_of(arguments.dim), inputs=arguments.inputs)
    result.write_where(arguments.json, arguments.html)
    print_record(result, quiet=arguments.quiet)
    return 0 if result.same else 1


COMMAND = command_line.Command("what differs between two models: nodes, weights, values", _declare, _run)
