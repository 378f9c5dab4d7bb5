"""The commands on models: optimize, show, demo. Each declares its arguments, runs, and returns the exit status."""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from rich.console import Console

from noyau.errors import InputError, OutputError


def declare_optimize(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="an ONNX model")
    parser.add_argument("-o", "--output", type=Path, help="where the fused model goes (MODEL.fused.onnx), with its library")
    _declare_wishes(parser)


def _declare_wishes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--inputs", type=Path, metavar="F.npz", help="arrays to check and time with, by input name")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="a size to check and time with")
    parser.add_argument("--keep", choices=("faster", "not-slower", "all"), default="faster", help="which kernels stay")
    parser.add_argument("--only", action="append", default=[], metavar="KERNEL", help="consider these kernels alone")
    parser.add_argument("--drop", action="append", default=[], metavar="KERNEL", help="leave these kernels out")
    parser.add_argument("--target", default="native", help="the CPU to build for: native, x86-64-v2, x86-64-v3...")
    parser.add_argument("--threads", type=int, default=1, help="threads to time with")
    parser.add_argument("--require", metavar="1.1x", help="fail (exit status 1) below this speed-up of the whole model")
    parser.add_argument("--json", type=Path, metavar="F", help="write the full record here")


def run_optimize(arguments: argparse.Namespace) -> int:
    output = arguments.output or arguments.model.with_suffix(".fused.onnx")
    return _optimize(arguments, arguments.model, output)


def _optimize(arguments: argparse.Namespace, model: Path, output: Path) -> int:
    """The main job from the command line; results on stdout, progress on stderr."""
    from noyau.optimizing import Wishes, optimize

    if output.resolve() == model.resolve():
        raise OutputError(f"{output} is the model itself; name another file with -o")
    if not output.parent.is_dir():
        raise OutputError(f"{output.parent} is no folder; make it first")
    required = _required(arguments.require)
    wishes = Wishes(
        keep=arguments.keep,
        dims=_dims(arguments.dim),
        inputs=arguments.inputs,
        target=arguments.target,
        threads=arguments.threads,
        only=arguments.only,
        drop=arguments.drop,
    )
    with Console(stderr=True).status("reading") as status:
        made = optimize(model, wishes, say=status.update)
    made.save(output)
    if arguments.json is not None:
        made.report.write(arguments.json)
    Console().print(made.report)
    print(f"wrote {output}" + (f" and {output.with_suffix('.so')}" if made.library else "; no kernel is in it"))
    whole = made.report.end_to_end.speedup
    if required is not None and (whole is None or whole < required):
        print(f"the model is {whole or 1:.2f}x as fast, less than the {required:.2f}x required", file=sys.stderr)
        return 1
    return 0


def _dims(texts: list[str]) -> dict[str, int]:
    """`["seq=128"]` as a mapping; InputError where one is not NAME=N with N from 0."""
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value.isdecimal():
            raise InputError(f"--dim {text} is not NAME=N, with N from 0: --dim sequence=128")
        found[name] = int(value)
    return found


def _required(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text.removesuffix("x"))
    except ValueError:
        raise InputError(f"--require {text} is no ratio: --require 1.1x") from None


def declare_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="an ONNX model")
    parser.add_argument("--kernel", metavar="NAME", help="print the source of this kernel")
    parser.add_argument("--language", default="c", help="the language to print it in: c")
    parser.add_argument("--target", default="native", help="the CPU to build for")


def run_show(arguments: argparse.Namespace) -> int:
    from noyau.showing import show

    shown = show(arguments.model, target=arguments.target)
    if arguments.kernel is None:
        Console().print(shown)
    else:
        print(shown.source(arguments.kernel, arguments.language), end="")
    return 0


def declare_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--exporter", choices=("dynamo", "torchscript"), default="dynamo", help="which export to take")
    parser.add_argument("--folder", type=Path, help="keep the models here; a temporary folder otherwise")
    _declare_wishes(parser)


def run_demo(arguments: argparse.Namespace) -> int:
    model = files("noyau.models").joinpath(f"llama_tiny_{arguments.exporter}.onnx")
    with tempfile.TemporaryDirectory(prefix="noyau-demo-") as temporary:
        folder = arguments.folder or Path(temporary)
        source = folder / "llama_tiny.onnx"
        source.write_bytes(model.read_bytes())
        return _optimize(arguments, source, folder / "llama_tiny.fused.onnx")
