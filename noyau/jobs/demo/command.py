"""The command `noyau demo`: the whole job on a small LLaMA that comes with the package."""

from __future__ import annotations

import argparse
import contextlib
import secrets
import tempfile
from importlib.resources import files
from pathlib import Path

from noyau.errors import OutputError
from noyau.jobs.command_line import Command
from noyau.jobs.optimize.command import declare_options, optimize_file


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--exporter",
        choices=("dynamo", "torchscript"),
        default="dynamo",
        help="which of PyTorch's exporters wrote the model (default: dynamo)",
    )
    parser.add_argument("--folder", type=Path, metavar="F", help="leave the models here, instead of nowhere")
    declare_options(parser)


def _run(arguments: argparse.Namespace) -> int:
    model = files("noyau.jobs.demo.models").joinpath(f"llama_tiny_{arguments.exporter}.onnx")
    with tempfile.TemporaryDirectory(prefix="noyau-demo-") as temporary:
        folder = arguments.folder or Path(temporary)
        source = folder / "llama_tiny.onnx"
        fresh = folder / f".noyau-{secrets.token_hex(8)}.tmp"
        try:
            fresh.write_bytes(model.read_bytes())
            fresh.replace(source)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise OutputError(f"{source} cannot be written: {error.strerror}; give a folder that exists") from error
        return optimize_file(arguments, source, folder / "llama_tiny.fused.onnx", keep=arguments.folder is not None)


COMMAND = Command("the whole job on a small LLaMA", _declare, _run)
