"""The command `noyau show`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from noyau.errors import InputError
from noyau.jobs.command_line import Command, declare_between

if TYPE_CHECKING:
    from noyau.jobs.show.stages import Staged


def _declare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "model",
        metavar="MODEL.onnx|FILE.py::OP",
        help="the model, which does not run; or an op; or a torch module, whose inputs the file names `inputs`",
    )
    add("--kernel", metavar="NAME", help="print the source of this kernel, under its certificate; or this one's stages")
    add(
        "--stage",
        metavar="STAGE",
        help="print the kernels at this stage of the compiler: graph, normal, loops, scheduled, text, or all",
    )
    add("--diff", metavar="A,B", help="print two stages side by side: graph,normal")
    add("--language", metavar="L", help="print the source in this language (default: c)")
    add("--target", default="native", metavar="CPU", help="the CPU to build for (default: native)")
    declare_between(parser)


def _run(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    if arguments.model.partition("::")[0].endswith(".py"):
        return _show_python(arguments)
    from noyau.jobs.show.model import show

    shown = show(arguments.model, target=arguments.target, between=arguments.between)
    if _print_stages(shown, arguments):
        return 0
    if arguments.kernel is None:
        Console().print(shown)
    else:
        print(shown.source(arguments.kernel, arguments.language or "c"), end="")
    return 0


def _show_python(arguments: argparse.Namespace) -> int:
    """An op or a torch module of a file."""
    from rich.console import Console

    from noyau.jobs.show.op_view import show_op
    from noyau.ops.op import Op
    from noyau.ops.op_files import load_op_or_module

    target = load_op_or_module(arguments.model)
    if not isinstance(target, Op):
        return _show_module(arguments, *target)
    language = arguments.language if arguments.stage or arguments.diff else None
    seen = show_op(target.description, target.usual(), language or "c")
    if _print_stages(seen, arguments):
        return 0
    if arguments.kernel is None and arguments.language is None:
        Console().print(seen)
    else:
        print(seen.source(arguments.kernel, arguments.language or "c"), end="")
    return 0


def _show_module(arguments: argparse.Namespace, module: object, inputs: object) -> int:
    from rich.console import Console

    from noyau.jobs.optimize.torch import job

    explained = job("explain").explain(module, inputs)
    if arguments.kernel is not None and arguments.stage is None and arguments.diff is None:
        print(explained.stage("text", arguments.kernel), end="")
    elif not _print_stages(explained, arguments):
        Console().print(explained)
    return 0


def _print_stages(shown: Staged, arguments: argparse.Namespace) -> bool:
    """Print what `--stage` or `--diff` asks for; False where neither does. InputError where both do."""
    from rich.console import Console

    if arguments.stage is not None and arguments.diff is not None:
        raise InputError("--stage prints stages one after the other, --diff two side by side: give one of them")
    if arguments.stage is not None:
        print(shown.stage(arguments.stage, arguments.kernel), end="")
    elif arguments.diff is not None:
        stages = arguments.diff.split(",")
        if len(stages) != 2:
            raise InputError(f"--diff {arguments.diff} is not two stages: --diff graph,normal")
        Console().print(shown.difference(stages[0], stages[1], arguments.kernel))
    return arguments.stage is not None or arguments.diff is not None


COMMAND = Command("groups, reasons, kernels, compiler stages", _declare, _run)
