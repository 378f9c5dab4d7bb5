"""The commands `noyau doctor`, of what noyau finds on this machine, and `noyau cache`, of what it keeps there."""

from __future__ import annotations

import argparse
import os
import platform
import sys

from noyau.errors import BuildError
from noyau.jobs.command_line import Command
from noyau.text import several
from noyau.version import __version__

_PACKAGES = ("numpy", "ml-dtypes", "rich", "onnx", "onnxruntime", "torch", "numba", "triton", "ziglang")


def _declare(parser: argparse.ArgumentParser) -> None:
    """This command takes no arguments."""


def _run(_: argparse.Namespace) -> int:
    from noyau.toolchain import cache
    from noyau.toolchain.c import compiler as c_compiler
    from noyau.workers.nvml import driver_version

    try:
        usual = c_compiler.find_compiler()
        compiler, status = f"{' '.join(usual.command)} ({usual.version})", 0
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


def _declare_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clear", action="store_true", help="remove every built kernel")


def _run_cache(arguments: argparse.Namespace) -> int:
    from noyau.toolchain import cache

    home, taken = cache.folder(), cache.size_bytes()
    if arguments.clear:
        count = cache.clear()
        print(f"removed {several(count, 'file')}, {taken / 2**20:.1f} MiB, from {home}")
    else:
        print(f"{home}: {taken / 2**20:.1f} MiB of at most {cache.LIMIT_BYTES / 2**20:.0f} MiB")
    return 0


CACHE = Command("show or clear the cache of built kernels", _declare_cache, _run_cache)
COMMAND = Command("say what noyau finds on this machine", _declare, _run)
