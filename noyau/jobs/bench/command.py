"""The command `noyau bench`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from noyau.errors import InputError
from noyau.jobs.command_line import Command, declare_record, print_rich, progress, require_place, sizes_of


def _declare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "target",
        metavar="FILE.py[::OP or ::f,g]",
        help="an op, of which the reference and every kernel are timed, or functions, the first of which is right",
    )
    add(
        "--sizes",
        action="append",
        default=[],
        metavar="NAME=N[,N...]",
        help="time with this size, or with several in turn (default: about a million cells); can be repeated",
    )
    add("--inputs", type=Path, metavar="F.npz", help="time on these arrays, in the order of the file")
    add("--budget", type=float, default=1.0, metavar="S", help="seconds of timing at each sizes (default: 1)")
    add("--cold", action=argparse.BooleanOptionalAction, default=None, help="on inputs that are in no cache, too")
    add(
        "--device", default="", metavar="D", help="cuda, or cuda:1: copy the inputs there and time on it (default: cpu)"
    )
    declare_record(parser, "with every sample")


def _run(arguments: argparse.Namespace) -> int:
    """0 where every candidate that runs is right, 1 where one is wrong."""
    from noyau.jobs.bench.run import bench
    from noyau.ops.op_files import load_ops_or_functions

    if not 0 < arguments.budget < float("inf"):
        raise InputError(f"--budget {arguments.budget:g} is no number of seconds above 0: --budget 1")
    sizes = sizes_of(arguments.sizes, "--sizes")
    for place in filter(None, (arguments.json, arguments.html)):
        require_place(place, Path(arguments.target.partition("::")[0]))
    with progress() as say:
        say(f"reading {arguments.target}")
        what, maker = load_ops_or_functions(arguments.target)
        inputs: Any = maker if arguments.inputs is None else _arrays(arguments.inputs)
        how: dict[str, Any] = {"budget_s": arguments.budget, "cold": arguments.cold, "device": arguments.device}
        record = bench(what, inputs, sizes=sizes, say=say, **how)
    if arguments.json is not None:
        record.write(arguments.json)
    if arguments.html is not None:
        record.save_html(arguments.html)
    print_rich(record)
    return 0 if record.ok else 1


def _arrays(path: Path) -> list[Any]:
    """The arrays of a file of NumPy's, in its order. InputError where it is none."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as archive:
            return [archive[name] for name in archive.files]
    except (OSError, ValueError, AttributeError, EOFError) as error:
        raise InputError(f"--inputs {path} cannot be read as an .npz file of arrays: {error}") from error


COMMAND = Command("an op's kernels, or functions, timed side by side", _declare, _run)
