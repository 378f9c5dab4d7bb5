"""The command `noyau demo`: the whole job on a small LLaMA that comes with the package."""

from __future__ import annotations

import argparse
import tempfile
from importlib.resources import files
from pathlib import Path

from noyau.jobs.command_line import Command, make_folder
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
    from noyau.hosts.onnxruntime.model_files import save_files

    model = files("noyau.jobs.demo.models").joinpath(f"llama_tiny_{arguments.exporter}.onnx")
    with tempfile.TemporaryDirectory(prefix="noyau-demo-") as temporary:
        folder = arguments.folder or Path(temporary)
        make_folder(folder)
        source = folder / "llama_tiny.onnx"
        save_files({source: model.read_bytes()}, source)
        status = optimize_file(arguments, source, folder / "llama_tiny.fused.onnx", keep=arguments.folder is not None)
    print(
        "\nNext: noyau profile MODEL.onnx   where the time of a model of yours goes, nothing is compiled\n"
        "      noyau optimize MODEL.onnx  the same as here; noyau show MODEL.onnx says why not more is fused\n"
        "      noyau check FILE.py        kernels of your own against float64, without a GPU"
    )
    return status


COMMAND = Command("the whole job on a small LLaMA", _declare, _run)
