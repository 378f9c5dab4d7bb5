"""The command `noyau diff`."""

from __future__ import annotations

import argparse
from pathlib import Path

from noyau.jobs.command_line import (
    Command,
    declare_inputs,
    declare_record,
    print_rich,
    progress,
    require_place,
    sizes_of,
)


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="A.onnx", help="the model that the other one is compared with")
    parser.add_argument("against", type=Path, metavar="B.onnx", help="the other model")
    declare_inputs(parser, "run both", "or at this one (default: small ones)")
    declare_record(parser, page=True)


def _run(arguments: argparse.Namespace) -> int:
    """0 where nothing differs but names, 1 where something does."""
    from noyau.jobs.diff.run import diff

    for place in filter(None, (arguments.json, arguments.html)):
        for model in (arguments.model, arguments.against):
            require_place(place, model)
    with progress() as say:
        say(f"comparing {arguments.model.name} and {arguments.against.name}")
        result = diff(arguments.model, arguments.against, dims=sizes_of(arguments.dim), inputs=arguments.inputs)
    if arguments.json is not None:
        result.write(arguments.json)
    if arguments.html is not None:
        result.save_html(arguments.html)
    print_rich(result)
    return 0 if result.same else 1


COMMAND = Command("what differs between two models: nodes, weights, values", _declare, _run)
