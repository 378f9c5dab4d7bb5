"""`noyau profile`: its arguments, and what it does."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from noyau.commands import progress
from noyau.errors import InputError, OutputError

# What takes long to import is imported where it is used: Ctrl-C is then answered from the start.


def declare_profile(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL.onnx", help="the model; it runs in onnxruntime, nothing is compiled")
    add("--inputs", type=Path, metavar="F.npz", help="run with these arrays (default: made-up ones)")
    add(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=N[,N...]",
        help="run with this size, or with several in turn: sequence=1,128,1024; can be repeated",
    )
    add("--between", metavar="A,B:C", help="look at the path from the values A and B to C alone")
    add("--threads", type=int, default=1, metavar="N", help="threads of onnxruntime (default: 1; 0: as it likes)")
    add("--top", type=int, default=12, metavar="N", help="rows of a table (default: 12)")
    add("--json", type=Path, metavar="F", help="write the full record here, node by node")


def run_profile(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from noyau.profiling.models import Wishes, profile

    wishes = Wishes(
        dims=sizes_of(arguments.dim),
        inputs=arguments.inputs,
        threads=arguments.threads,
        between=arguments.between,
        top=arguments.top,
    )
    if arguments.json is not None:
        require_place(arguments.json, arguments.model)
    with progress() as say:
        found = profile(arguments.model, wishes, say)
    if arguments.json is not None:
        found.write(arguments.json)
    Console().print(found)
    return 0


def sizes_of(texts: list[str], option: str = "--dim") -> dict[str, list[int]]:
    """`["sequence=1,128"]` as a mapping; InputError where one is not NAME=N or NAME=N,N... with N from 0."""
    found = {}
    for text in texts:
        name, _, values = text.rpartition("=")
        numbers = values.split(",")
        if not name or not all(each.isascii() and each.isdecimal() and len(each) <= 18 for each in numbers):
            raise InputError(f"{option} {text} is not NAME=N or NAME=N,N..., with N from 0: {option} sequence=1,128")
        found[name] = [int(each) for each in numbers]
    return found


def require_place(record: Path, model: Path) -> None:
    """OutputError where the record has no place, or would be written over the model: before any work."""
    if os.path.realpath(record) == os.path.realpath(model):
        raise OutputError(f"the record would go to {record}, which is the model itself: name another file")
    if not os.path.isdir(record.parent):
        raise OutputError(f"{record.parent} is no folder: make it first")
    if os.path.isdir(record) or not os.access(record.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{record} cannot be written: it is a folder, or lies in one that is read-only")
