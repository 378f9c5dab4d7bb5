"""The command `noyau show`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from noyau.errors import InputError
from noyau.jobs.command_line import Command, declare_between, declare_record, require_record_places, target_of
from noyau.text import TextRecord

if TYPE_CHECKING:
    from noyau.jobs.show.stages import StagedKernels


def _declare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    what = "the model, which does not run; or an op; or a torch module, whose inputs the file names `inputs`"
    add("model", type=target_of, metavar="MODEL.onnx|FILE.py::OP", help=what)
    add("--kernel", metavar="NAME", help="print the source of this kernel, under its certificate; or this one's stages")
    stages = "print the kernels at this stage of the compiler: graph, normal, loops, scheduled, text, or all"
    add("--stage", metavar="STAGE", help=stages)
    add("--diff", metavar="A,B", help="print two stages side by side: graph,normal")
    add("--language", metavar="L", help="print the source in this language (default: c)")
    add("--target", metavar="CPU", help="of a model: the CPU to build for (default: native)")
    declare_between(parser)
    declare_record(parser, page=True)


def _run(arguments: argparse.Namespace) -> int:
    kernel, language = arguments.kernel, "c" if arguments.language is None else arguments.language
    file = Path(arguments.model.partition("::")[0])
    require_record_places(file, arguments.json, arguments.html)
    if file.suffix != ".py":
        from noyau.jobs.show.model import show

        if kernel is None and arguments.language is not None:
            raise InputError("--language is for the source of a model's kernel: give --kernel too")
        shown = show(arguments.model, target=arguments.target or "native", between=arguments.between)
        return _print(shown, arguments, None if kernel is None else lambda: shown.source(kernel, language))
    if arguments.target is not None or arguments.between is not None:
        raise InputError(f"--target and --between are for models, and {arguments.model} is none: leave them out")
    from noyau.jobs.optimize.torch import job
    from noyau.jobs.show.op_view import show_op
    from noyau.ops.op import Op
    from noyau.ops.op_files import load_op_or_module

    target = load_op_or_module(arguments.model)
    if not isinstance(target, Op):
        if arguments.language is not None:
            raise InputError("--language is for kernels of models and ops, and this is a module of torch: leave it out")
        explained = job("explain").explain(*target)
        return _print(explained, arguments, None if kernel is None else lambda: explained.stage("text", kernel))
    seen = show_op(target.description, target.usual(), language if arguments.stage or arguments.diff else "c")
    is_whole = kernel is None and arguments.language is None
    return _print(seen, arguments, None if is_whole else lambda: seen.source(kernel, language))


def _print(shown: StagedKernels, arguments: argparse.Namespace, source: Callable[[], str] | None) -> int:
    """Print what `--stage` or `--diff` asks for, else the source, else the view. InputError where both ask."""
    if arguments.html is not None:
        shown.save_html(arguments.html)
    if arguments.stage is not None and arguments.diff is not None:
        raise InputError("--stage prints stages one after the other, --diff two side by side: give one of them")
    from noyau.jobs.report.text import print_record, write_found

    view: TextRecord | str = shown
    if arguments.stage is not None:
        view = shown.stage(arguments.stage, arguments.kernel)
    elif arguments.diff is not None:
        one, comma, other = arguments.diff.partition(",")
        if not comma or "," in other:
            raise InputError(f"--diff {arguments.diff} is not two stages: --diff graph,normal")
        view = shown.difference(one, other, arguments.kernel)
    elif source is not None:
        view = source()
    names = ("kernel", "stage", "diff", "language")
    write_found(arguments.json, {each: getattr(arguments, each) for each in ("model", *names)} | {"text": str(view)})
    if isinstance(view, str):
        print(view if not arguments.quiet else view.partition("\n")[0], end="")
    else:
        print_record(view, quiet=arguments.quiet)
    return 0


COMMAND = Command("groups, reasons, kernels, compiler stages", _declare, _run)
