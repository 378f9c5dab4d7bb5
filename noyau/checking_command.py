"""The command `noyau check`."""

from __future__ import annotations

import argparse
from pathlib import Path

from noyau.commands import progress
from noyau.errors import InputError
from noyau.profiling.command import require_place, sizes_of


def declare_check(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("target", metavar="MODEL.onnx", help="the model whose float64 evaluation is the truth")
    add("--against", type=Path, metavar="B.onnx", help="the model to judge: at each output, and at each common value")
    add("--inputs", type=Path, metavar="F.npz", help="run both on these arrays (default: made-up ones)")
    add(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=N[,N...]",
        help="run with this size, or with several in turn (default: small sizes, then all at 1); can be repeated",
    )
    add("--json", type=Path, metavar="F", help="write the full record here, value by value")


def run_check(arguments: argparse.Namespace) -> int:
    """0 where nothing differs, 1 where something does."""
    from rich.console import Console

    from noyau.differing import apart

    target = Path(arguments.target)
    if arguments.against is None:
        raise InputError(f"{target} is checked against another model: noyau check {target} --against B.onnx")
    if arguments.json is not None:
        require_place(arguments.json, target)
    with progress() as say:
        say(f"running {target.name} and {arguments.against.name}")
        found = apart(target, arguments.against, dims=sizes_of(arguments.dim), inputs=arguments.inputs)
        if arguments.json is not None:
            found.write(arguments.json)
    Console().print(found)
    return 0 if found.ok else 1
