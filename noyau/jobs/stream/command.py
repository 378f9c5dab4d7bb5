"""The command `noyau stream`."""

import argparse
import ast
import math
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from noyau.errors import InputError
from noyau.jobs import command_line
from noyau.workers.resources import resident_bytes

_BESIDE = 48 << 20  # bytes that readers, threads and the build of kernels take beside chunks
_LEAST = 24 << 20  # least bytes for chunks


def _declare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    own = "noyau.reductions::HyperLogLog is one of noyau's own"
    add("target", type=command_line.target_of, metavar="FILE.py::OP", help=f"an op, or a reduction; {own}")
    sources = "files (Parquet, CSV, Arrow, .npy; a folder, a glob, a URL), or URL::TABLE"
    add("source", type=command_line.place_of, metavar="SOURCE", help=sources)
    sink = "x.parquet, .csv, .npy or URL::TABLE for rows; .npz, .json for a result"
    add("-o", "--output", type=command_line.place_of, metavar="SINK", help=sink)
    add("--column", action="append", default=[], metavar="ARG=NAME[,NAME...]", help="the column of an argument")
    add("--argument", action="append", default=[], metavar="ARG=VALUE", help="an argument or a parameter without rows")
    add("--where", metavar="CONDITION", help="rows to read: \"price > 3 and shop in ('a', 'b')\"")
    add("--memory", metavar="N", help="bytes that this process may take: 500M, 2Gi (default: 1G beside what it has)")
    engines = "local (default): threads or processes; cuda, dask, spark; cuda:0,1, dask:ADDRESS, spark:MASTER"
    add("--engine", metavar="NAME", help=engines)
    threads = "threads that compute, or processes; of dask and spark, threads of a task"
    add("--workers", type=int, metavar="N", help=threads)
    add("--nulls", choices=("refuse", "skip", "nan"), default="refuse", help="what to do with rows that have nulls")
    add("--bad-lines", type=Path, metavar="DIR", help="put lines that are no rows here, instead of refusing them")
    add("--in-order", action="store_true", help="run a reduction that is no monoid chunk by chunk")
    add("--restart", action="store_true", help="begin anew where work on SINK was ended")
    command_line.declare_record(parser)


def _values(option: str, texts: list[str], form: str, read: Callable[[str], Any]) -> dict[str, Any]:
    """The texts `NAME=VALUE` of an option, read by name. InputError, with the right form, where one is not so."""
    values = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            values[name] = read(value if name else "")
        except (ValueError, SyntaxError, TypeError) as fault:
            raise InputError(f"{option} {text} is not {form}") from fault
    return values


def _columns(text: str) -> str | list[str]:
    one, *others = text.split(",")
    if not one:
        raise ValueError(text)
    return [one, *others] if others else one


def _room(memory: str) -> int:
    """The bytes that remain for the stream. InputError where they are too few."""
    from noyau.engines.stream import bytes_of

    if find_spec("pyarrow") is not None:  # load its libraries first, so that they count as resident
        import_module("noyau.engines.arrow_files")
    own = (resident_bytes() or 0) + _BESIDE
    room = bytes_of(memory) - own
    if room < _LEAST:
        least = f"say at least --memory {math.ceil((own + _LEAST) / 1e6)}M"
        raise InputError(f"--memory {memory} is too small: Python and its packages take {own // 10**6} MB; {least}")
    return room


def _run(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from noyau.engines.laws import load_target
    from noyau.engines.stream import stream
    from noyau.jobs.report.text import write_found

    columns = _values("--column", arguments.column, "ARG=NAME, an argument and its column", _columns)
    form = "NAME=VALUE, with a number or a list of numbers"
    values = _values("--argument", arguments.argument, form, ast.literal_eval)
    command_line.require_record_places(Path(arguments.target.partition("::")[0]), arguments.json)
    op = load_target(arguments.target, values)
    memory = "1G" if arguments.memory is None else _room(arguments.memory)
    names = ("engine", "workers", "where", "nulls", "bad_lines", "in_order")
    same: dict[str, Any] = {each: getattr(arguments, each) for each in names}
    looks = (TextColumn("{task.completed:.3g} rows"), BarColumn(), TextColumn("{task.fields[rate]}"))
    console = Console(stderr=True, quiet=arguments.quiet)
    is_shown = console.is_terminal
    with Progress(*looks, TimeRemainingColumn(), console=console, transient=True, disable=not is_shown) as progress:
        task = progress.add_task("", total=None, rate="")

        def tell(rows: int, total: int | None) -> None:
            progress.update(task, advance=rows, total=total, rate=f"{progress.tasks[0].speed or 0:.3g} rows/s")

        how = {"arguments": values, "memory": memory, "resume": not arguments.restart, **same}
        try:
            result = stream(op, arguments.source, arguments.output, columns=columns or None, tell=tell, **how)
        except KeyboardInterrupt:
            if Path(f"{arguments.output}.progress").exists():
                console.print("noyau: the same command goes on from here; --restart begins anew", highlight=False)
            raise
    write_found(arguments.json, {"source": arguments.source, "result": str(result)})
    print(result)
    return 0


COMMAND = command_line.Command("run an op or a reduction over data larger than memory", _declare, _run)
