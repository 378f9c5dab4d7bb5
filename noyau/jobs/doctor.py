"""The commands on this machine: `noyau doctor` (installed tools), `cache` (built kernels), `machine` (its rates)."""

import argparse
import importlib.metadata
import operator
import os
import platform
import re
import sys

from noyau.errors import BuildError
from noyau.jobs.command_line import Command, declare_record, require_record_places
from noyau.text import package_text, several
from noyau.version import __version__

_PACKAGES = tuple("numpy ml-dtypes rich onnx onnxruntime torch numba numba-cuda triton ziglang".split())
_NONE = "-"  # in the table of releases: the set lacks the package


def _run(arguments: argparse.Namespace) -> int:
    from noyau.jobs.report.text import write_found
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
        "python": f"{release_text('python', platform.python_version())} ({sys.executable})",
        "machine": f"{platform.system()} {platform.machine()}, {c_compiler.level()}, {os.cpu_count()} processors",
        "gpu": f"NVIDIA's driver {driver_version()}" if driver_version() else "none that noyau can use",
        "compiler": compiler,
        "cache": f"{cache.folder()}, {cache.size_bytes() / 2**20:.1f} MiB",
        **{name: _release(name) for name in _PACKAGES},
    }
    write_found(arguments.json, {"ok": not status, "facts": facts})
    for name, fact in facts.items():
        print(f"{name:<12} {fact}")
    return status


def _release(package: str) -> str:
    try:
        return release_text(package, importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def release_text(package: str, release: str) -> str:
    """A release, and whether it is among those tested: `0.68.1: tried`."""
    tried = sorted(tried_releases().get(package, ()), key=_numbers)
    if not tried:
        return release
    # For Python the table has only minor releases.
    own = _numbers(release)[: 2 if package == "python" else None]
    older, newer = ([each for each in tried if before(_numbers(each), own)] for before in (operator.lt, operator.gt))
    if len(older) + len(newer) < len(tried):
        return f"{release}: tried"
    if older and newer:
        return f"{release}: not tried, as {older[-1]} and {newer[0]} were"
    much = f"newer than what was tried ({tried[-1]})" if older else f"older than noyau supports ({tried[0]})"
    return f"{release}: {much}"


def tried_releases() -> dict[str, set[str]]:
    """The releases that .ci/versions tries, by package: releases.txt."""
    text = package_text("jobs/releases.txt")
    names, *sets = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {name: {*releases} - {_NONE} for name, *releases in zip(names, *sets, strict=True)}


def _numbers(release: str) -> tuple[int, ...]:
    """The numbers of a release, for sorting, without those of a local version, as in 2.13.0+cpu."""
    return tuple(map(int, re.findall(r"\d+", release.partition("+")[0])))


def _declare_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clear", action="store_true", help="remove every built kernel")
    declare_record(parser)


def _run_cache(arguments: argparse.Namespace) -> int:
    from noyau.jobs.report.text import write_found
    from noyau.toolchain import cache

    require_record_places(None, arguments.json)
    home, taken = cache.folder(), cache.size_bytes()
    count = cache.clear() if arguments.clear else 0
    facts = {"folder": str(home), "bytes": taken, "limit_bytes": cache.LIMIT_BYTES, "removed": count}
    write_found(arguments.json, facts)
    kept = f"{home}: {taken / 2**20:.1f} MiB of at most {cache.LIMIT_BYTES / 2**20:.0f} MiB"
    print(f"removed {several(count, 'file')}, {taken / 2**20:.1f} MiB, from {home}" if arguments.clear else kept)
    return 0


def _declare_machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--refresh", action="store_true", help="measure again, though nothing has changed")
    parser.add_argument("--device", metavar="D", help="cpu, cuda or cuda:1 alone (default: the processor, and a GPU)")
    declare_record(parser)


def _run_machine(arguments: argparse.Namespace) -> int:
    from noyau.jobs.machine.run import run_machine

    return run_machine(arguments)


CACHE = Command("show or clear the cache of built kernels", _declare_cache, _run_cache)
COMMAND = Command("say what noyau finds on this machine", declare_record, _run)
MACHINE = Command("what this machine can do, measured", _declare_machine, _run_machine)
