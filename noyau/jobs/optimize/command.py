"""The commands `noyau optimize` and `noyau demo`."""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noyau.errors import InputError, OutputError
from noyau.jobs import command_line
from noyau.jobs.command_line import make_folder, plain, require_writable, size_of_each, sizes_of

if TYPE_CHECKING:
    from noyau.jobs.optimize.record import Report

RUNTIMES = ("torch", "onnxruntime")
WEIGHTS = ("none", "auto", "int8", "int4")
# Options that a model in torch does not have (it cannot be written with weights in few bits), and their defaults.
_OF_ONNXRUNTIME: Mapping[str, Any] = {"weights": "none", "target": "native", "threads": 1} | {
    **{name: [] for name in ("with", "only", "drop", "fix-dim")},
    **dict.fromkeys(("between", "within", "budget", "calibration")),
    **dict.fromkeys(("fresh", "tune"), False),
}

# Modules that take long to import are imported where they are used, so that Ctrl-C works from the start.


def _declare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL.onnx", help="the model; it is not changed")
    place = "where the fused model goes, with its library OUT.so beside it (default: MODEL.fused.onnx)"
    add("-o", "--output", type=Path, metavar="OUT.onnx", help=place)
    hosted = "OUT (default: MODEL.noyau) is then a file that noyau.load reads, for inputs of these sizes"
    add("--device", metavar="cuda", help=f"let torch host the model on this device, with kernels in Triton; {hosted}")
    runtime = "with --device: torch (default), or onnxruntime: OUT.so then has kernels of its CUDA provider too"
    add("--runtime", choices=RUNTIMES, default=RUNTIMES[0], help=runtime)
    declare_options(parser)


def declare_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    sizes = "or with each of these; can be repeated (default: small, usual and large in turn)"
    command_line.declare_inputs(parser, "check and time", sizes)
    fixed = "write the model with this size alone, as a number: onnxruntime folds what follows from it; can be repeated"
    add("--fix-dim", action="append", default=[], metavar="NAME=SIZE", help=fixed)
    kept = "which of the correct kernels to keep: those surely faster (default), those not surely slower, or all"
    add("--keep", choices=("faster", "not-slower", "all"), default="faster", help=kept)
    command_line.declare_between(parser)
    own = "put this op's own kernel in the place that its file names, if it is right and wins; can be repeated"
    add("--with", dest="ops", action="append", default=[], metavar="FILE.py::OP", help=own)
    place = "a kernel, or a value that one writes, for that place alone; can be repeated"
    add("--only", action="append", default=[], metavar="GROUP", help=f"this group and no other: {place}")
    add("--drop", action="append", default=[], metavar="GROUP", help="not this group; as --only")
    add("--target", default="native", metavar="CPU", help="build for: native (default), x86-64-v2... and sm_90...")
    add("--threads", type=int, default=1, metavar="N", help="threads of onnxruntime to time with (default: 1)")
    add("--fresh", action="store_true", help="time everything anew, whatever earlier runs found")
    tuned = "try other options of the schedules, or never take any (default: those that --tune found best before)"
    add("--tune", action=argparse.BooleanOptionalAction, default=None, help=tuned)
    add("--weights", choices=WEIGHTS, help="try weights of products in few bits, onnxruntime's own (default: none)")
    add("--budget", metavar="1e-2", help="how far such weights may move the outputs (default: same-tokens)")
    add("--calibration", type=Path, metavar="F.npz|F.py", help="hold them against the outputs on these arrays")
    add("--within", metavar="SECONDS", help="end after S seconds: what is not timed by then is not kept")
    add("--require", metavar="1.1x", help="exit with status 1 where the whole model is not that much faster")
    command_line.declare_record(parser, page=True)


def _run(arguments: argparse.Namespace) -> int:
    model: Path = arguments.model
    if arguments.device is not None and arguments.runtime == RUNTIMES[0]:
        return _on_device(arguments, model, arguments.output or model.parent / f"{model.stem}.noyau")
    return optimize_file(arguments, model, arguments.output or model.parent / f"{model.stem}.fused.onnx", keep=True)


def optimize_file(arguments: argparse.Namespace, model: Path, output: Path, *, keep: bool) -> int:
    """The main job from the command line; results on stdout, progress on stderr. `keep`: the files stay."""
    from noyau.jobs.optimize.onnx.options import OptimizeOptions
    from noyau.jobs.optimize.onnx.run import optimize

    require_places(model, output, arguments.json, arguments.html)
    required, within = _parse_ratio(arguments.require), arguments.within
    fault = f"--within {within} is no number of seconds: --within 60"
    own = {each.name: getattr(arguments, each.name) for each in fields(OptimizeOptions) if each.name in arguments}
    own |= {"device": "cpu"} if own.get("device") is None else {}
    own |= {"dims": sizes_of(arguments.dim), "fix_dims": size_of_each(arguments.fix_dim, "--fix-dim")}
    own |= {"within_s": math.inf if within is None else _number(within, fault), "weights": arguments.weights or "none"}
    with command_line.progress(quiet=arguments.quiet) as say:
        result = optimize(model, OptimizeOptions(**own), say)
        result.save(output)
    files = _written_text(output, result.library is not None, result.report) if keep else ""
    return _finish(arguments, replace(result.report, written=files), required)


def _finish(arguments: argparse.Namespace, report: Report, required: float | None) -> int:
    """Write and print a report; return 1, with a line on stderr, if the speed-up is below the required one."""
    from noyau.jobs.report.text import print_record

    report.write_where(arguments.json, arguments.html)
    print_record(report, quiet=arguments.quiet)
    speedup = report.end_to_end.speedup if report.is_changed else 1.0
    if required is None or (speedup is not None and speedup >= required):
        return 0
    reached = "was not timed" if speedup is None else f"is {speedup:.2f}x as fast"
    reached = reached if report.is_changed else "is as it was"
    print(f"noyau: the whole model {reached}; --require asks for {required:.2f}x", file=sys.stderr)
    return 1


def _on_device(arguments: argparse.Namespace, model: Path, output: Path) -> int:
    """The main job with torch as the model's host."""
    from noyau.jobs.optimize.torch import job

    for option, absent in _OF_ONNXRUNTIME.items():
        if getattr(arguments, "ops" if option == "with" else option.replace("-", "_")) not in (None, absent):
            raise InputError(f"--{option} is for models in onnxruntime: leave it, or --device, out")
    dims = size_of_each(arguments.dim)
    require_places(model, output, arguments.json, arguments.html)
    required = _parse_ratio(arguments.require)
    with command_line.progress(quiet=arguments.quiet) as say:
        say(f"hosting {model.name} on {arguments.device}")
        wishes: dict[str, Any] = {} if arguments.inputs is None else {"inputs": arguments.inputs}
        wishes |= {"device": arguments.device, "dims": dims, "keep": arguments.keep}
        result = job("onnx_model").optimize_model(model, **wishes)
        result.save(output)
    name = plain(str(output))
    files = f"Wrote {name}; noyau.load({name!r}) is called with the model's inputs."
    return _finish(arguments, replace(result.report, written=files), required)


def require_places(model: Path, output: Path, record: Path | None, page: Path | None = None) -> None:
    """OutputError, before any work, if an output cannot be written or would overwrite the model or another one."""
    from noyau.hosts.onnxruntime.model_files import library_path

    occupied = {os.path.realpath(model): "the model itself"}
    records = {} if record is None else {"the record": record}
    for what, place in {"the fused model": output, "its library": library_path(output), **records}.items():
        end = os.path.realpath(place)
        if end in occupied:
            raise OutputError(f"{what} would go to {place}, which is {occupied[end]}: name another file")
        occupied[end] = what
        if os.path.isdir(place.parent):  # a missing one is made below
            require_writable(place)
        if os.path.exists(place) and (not os.path.isfile(place) or os.path.realpath(place.parent) == "/dev"):
            raise OutputError(f"{place} is no plain file, and a new one would take its place: name another")
    for place in (output, *records.values()):
        if place.parent != model.parent:  # a missing folder of the model is reported when the model is read
            make_folder(place.parent)
    command_line.require_record_places(model, page)


def _written_text(output: Path, fused: bool, report: Report) -> str:
    if not fused:
        less = "other weights, no kernel is in it" if report.is_changed else "the model as it was, no kernel is in it"
        return plain(f"Wrote {output}: {less}.")
    # onnxruntime takes a name without a folder for a library of the system.
    place = output.with_suffix(".so")
    library = plain(str(place) if len(place.parts) > 1 else f"./{place}")
    return (
        f"Wrote {plain(str(output))} and {library}.\n"
        f"They run by noyau.session({plain(str(output))!r}), or in any session of onnxruntime after\n"
        f"options.register_custom_ops_library({library!r}); without that the model runs as before."
    )


def _parse_ratio(text: str | None) -> float | None:
    return None if text is None else _number(text.removesuffix("x"), f"--require {text} is no ratio: --require 1.1x")


def _number(text: str, fault: str) -> float:
    if not text.replace(".", "", 1).isdecimal() or not text.isascii():
        raise InputError(fault)
    return float(text)


def _declare_demo(parser: argparse.ArgumentParser) -> None:
    exporters = "which of PyTorch's exporters wrote the model (default: dynamo)"
    parser.add_argument("--exporter", choices=("dynamo", "torchscript"), default="dynamo", help=exporters)
    parser.add_argument("--folder", type=Path, metavar="F", help="leave the models here, instead of nowhere")
    declare_options(parser)


def _run_demo(arguments: argparse.Namespace) -> int:
    """The whole job on a small LLaMA that comes with the package."""
    from noyau.hosts.onnxruntime.model_files import save_files

    model = files("noyau.jobs.demo.models").joinpath(f"llama_tiny_{arguments.exporter}.onnx")
    with tempfile.TemporaryDirectory(prefix="noyau-demo-") as temporary:
        folder = arguments.folder or Path(temporary)
        make_folder(folder)
        if arguments.folder is not None and arguments.html is None:
            arguments.html = folder / "llama_tiny.html"
        source = folder / "llama_tiny.onnx"
        save_files({source: model.read_bytes()}, source)
        status = optimize_file(arguments, source, folder / "llama_tiny.fused.onnx", keep=arguments.folder is not None)
    if not arguments.quiet:
        print(f"\n{_next(arguments)}")
    return status


def _next(arguments: argparse.Namespace) -> str:
    """Lines on the next steps, with the files of the demo if they are kept."""
    folder, page = arguments.folder, arguments.html
    name = "MODEL.onnx" if folder is None else plain(str(folder / "llama_tiny.onnx"))
    opening = f"open {plain(str(page))} in a browser", "graphs, sources, certificates"
    steps = (
        opening if page else ("noyau demo --folder F", "the same, and the models and a page stay in F"),
        (f"noyau show {name}", "why not more is fused"),
        (f"noyau profile {name}", "where the time goes; nothing is compiled"),
        ("noyau optimize MODEL.onnx", "the same with a model of yours"),
        ("noyau check FILE.py", "kernels of your own against float64, without a GPU"),
    )
    return "\n".join(["Next:", *(f"  {command}\n      {what}" for command, what in steps)])


COMMAND = command_line.Command("fuse a model, check and time it, write it", _declare, _run)
DEMO = command_line.Command("the whole job on a small LLaMA", _declare_demo, _run_demo)
