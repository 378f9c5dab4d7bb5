"""The command `noyau extract`."""

import argparse
from pathlib import Path

from noyau.jobs import command_line
from noyau.jobs.command_line import plain, progress, size_of_each


def _declare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL.onnx", help="the model; it is not changed")
    command_line.declare_between(parser, "{}", required=True)
    place = "where the op goes, with PATH.npz and PATH.c beside it (default: path.py)"
    add("-o", "--output", type=Path, default=Path("path.py"), metavar="PATH.py", help=place)
    command_line.declare_inputs(parser, "run the model", "one number; can be repeated")
    add("--force", action="store_true", help="replace files that are there already")
    command_line.declare_record(parser)


def _run(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from noyau.jobs.extract.run import extract, op_name, require_room
    from noyau.jobs.report.text import write_found

    command_line.require_record_places(arguments.model, arguments.json)
    require_room(arguments.output, force=arguments.force)
    with progress(quiet=arguments.quiet) as say:
        say(f"running {arguments.model.name} up to the path")
        path = extract(arguments.model, arguments.between, dims=size_of_each(arguments.dim), inputs=arguments.inputs)
        files = path.save(arguments.output, force=arguments.force)
    notes = [str(note) for note in path.notes]
    write_found(arguments.json, {"model": str(arguments.model), "files": [str(file) for file in files], "notes": notes})
    op = f"{arguments.output}::{op_name(arguments.output)}"
    lines = [
        f"Wrote {', '.join(plain(str(file)) for file in files)}.",
        *(f"  {plain(note)}" for note in path.notes),
        f"Next: noyau optimize {plain(str(arguments.model))} --with {plain(op)}",
    ]
    Console(soft_wrap=True).print("\n".join(lines[:1] if arguments.quiet else lines), markup=False, highlight=False)
    return 0


COMMAND = command_line.Command("a path as an op of its own", _declare, _run)
