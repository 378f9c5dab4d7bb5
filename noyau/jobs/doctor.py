"""The command `noyau doctor`: the compiler, the GPU and the packages that noyau finds on this machine."""

from __future__ import annotations

import argparse
import os
import platform
import sys

from noyau.errors import BuildError
from noyau.jobs.command_line import Command
from noyau.version import __version__

_PACKAGES = ("numpy", "ml-dtypes", "rich", "onnx", "onnxruntime", "torch", "numba", "triton", "ziglang")


def _declare(parser: argparse.ArgumentParser) -> None:
    """This command takes no arguments."""


def _run(_: argparse.Namespace) -> int:
    from noyau.toolchain import cache
    from noyau.toolchain.c import compiler as c_compiler
    from noyau.workers.nvml import driver_version

    try:
        found = c_compiler.find_compiler()
        compiler, status = f"{' '.join(found.command)} ({found.version})", 0
    except BuildError as error:
        compiler, status = str(error), 1
    facts = {
        "noyau": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "machine": f"{platform.system()} {platform.machine()}, {c_compiler.level()}, {os.cpu_count()} processors",
        "gpu": f"NVIDIA's driver {driver_version()}" if driver_version() else "none that noyau can use",
        "compiler": compiler,
        "cache": f"{cache.folder()}, {cache.size_bytes() / 2**20:.1f} MiB",
        **{name: _release(name) for name in _PACKAGES},
    }
    for name, fact in facts.items():
        print(f"{name:<12} {fact}")
    return status


def _release(package: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


COMMAND = Command("say what noyau finds on this machine", _declare, _run)
