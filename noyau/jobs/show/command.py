"""The command `noyau show`."""

from __future__ import annotations

import argparse

from noyau.jobs.command_line import Command, declare_between


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL.onnx|FILE.py::OP", help="the model, which does not run; or an op")
    parser.add_argument("--kernel", metavar="NAME", help="print the source of this kernel, under its certificate")
    parser.add_argument("--language", metavar="L", help="print the source in this language (default: c)")
    parser.add_argument("--target", default="native", metavar="CPU", help="the CPU to build for (default: native)")
    declare_between(parser)


def _run(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from noyau.jobs.show.model import show

    if arguments.model.partition("::")[0].endswith(".py"):
        return _show_op(arguments)
    shown = show(arguments.model, target=arguments.target, between=arguments.between)
    if arguments.kernel is None:
        Console().print(shown)
    else:
        print(shown.source(arguments.kernel, arguments.language or "c"), end="")
    return 0


def _show_op(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from noyau.jobs.show.op import shown
    from noyau.ops.op_files import load_op

    op = load_op(arguments.model)
    seen = shown(op.description, op.usual())
    if arguments.kernel is None and arguments.language is None:
        Console().print(seen)
    else:
        print(seen.source(arguments.kernel, arguments.language or "c"), end="")
    return 0


COMMAND = Command("a model's groups, reasons and kernels", _declare, _run)
