"""`noyau stream`: its arguments, and what it does."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

from noyau.errors import InputError
from noyau.jobs import command_line


def _declare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("target", metavar="FILE.py::OP", help="an op, or a reduction under @noyau.reduction")
    add("source", metavar="SOURCE", help="files (Parquet, CSV, Arrow, .npy; a folder, a glob, a URL), or URL::TABLE")
    add("-o", "--output", metavar="SINK", help="x.parquet, .csv, .npy or URL::TABLE for rows; .npz, .json for a result")
    add("--column", action="append", default=[], metavar="ARG=NAME[,NAME...]", help="the column of an argument")
    add("--argument", action="append", default=[], metavar="ARG=VALUE", help="an argument that has no rows")
    add("--memory", default="1G", metavar="N", help="bytes for chunks: 500M, 2Gi (default: 1G)")
    add("--workers", type=int, metavar="N", help="threads that compute (default: one for each processor)")
    add("--nulls", choices=("refuse", "skip", "nan"), default="refuse", help="what becomes of rows with nulls")
    add("--bad-lines", type=Path, metavar="DIR", help="put lines that are no rows here, instead of refusing them")
    add("--in-order", action="store_true", help="run a reduction that is no monoid chunk by chunk")
    add("--restart", action="store_true", help="begin anew where work on SINK was ended")


def _value(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError) as fault:
        raise InputError(f"--argument {text} is not NAME=VALUE, with a number or a list of numbers") from fault


def _run(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from noyau.engines.reduction import load_target
    from noyau.engines.stream import stream

    pairs = dict(each.partition("=")[::2] for each in arguments.column)
    columns = {name: text.split(",") if "," in text else text for name, text in pairs.items()}
    values = dict(map(_value, arguments.argument))
    looks = (TextColumn("{task.completed:.3g} rows"), BarColumn(), TextColumn("{task.fields[rate]}"))
    op = load_target(arguments.target)
    with Progress(*looks, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None, rate="")
        result = stream(
            *(op, arguments.source, arguments.output),
            columns=columns or None,
            arguments=values,
            workers=arguments.workers,
            memory=arguments.memory,
            nulls=arguments.nulls,
            bad_lines=arguments.bad_lines,
            in_order=arguments.in_order,
            resume=not arguments.restart,
            tell=lambda rows, total: progress.update(
                task, advance=rows, total=total, rate=f"{progress.tasks[0].speed or 0:.3g} rows/s"
            ),
        )
    print(result)
    return 0


COMMAND = command_line.Command("run an op or a reduction over data larger than memory", _declare, _run)
