"""The command `noyau check`."""

from __future__ import annotations

import argparse
from pathlib import Path

from noyau.commands import plain, progress
from noyau.errors import InputError
from noyau.profiling.command import require_place, sizes_of


def declare_check(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "target",
        metavar="MODEL.onnx|FILE.py[::OP]",
        help="the model whose float64 evaluation is the truth, or an op, of which every kernel is checked",
    )
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

    if Path(arguments.target.partition("::")[0]).suffix == ".py":
        return _check_op(arguments)
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


def _check_op(arguments: argparse.Namespace) -> int:
    """Every kernel of an op against its reference."""
    from rich.console import Console

    from noyau.checking.ops import check
    from noyau.differing import write_json
    from noyau.loading import load_op

    if arguments.against is not None or arguments.inputs is not None:
        raise InputError("--against and --inputs are of models: an op is checked against its own reference")
    op = load_op(arguments.target)
    with progress() as say:
        say(f"checking {len(op.kernels)} kernels of {op.name}")
        found = check(op, sizes={name: values[0] for name, values in sizes_of(arguments.dim).items()})
    if arguments.json is not None:
        write_json(found.to_json(), arguments.json)
    Console(soft_wrap=True).print(plain_lines(str(found)), markup=False, highlight=False)
    return 0 if found.ok else 1


def plain_lines(text: str) -> str:
    """The lines of a text, each safe to print."""
    return "\n".join(map(plain, text.splitlines()))
