"""The command `noyau`: a table of sub-commands.

Exit status: 0 right, 1 wrong (or slower than asked), 2 unusable arguments, 130 after Ctrl-C, 143 after SIGTERM.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

from noyau.errors import BuildError, NoyauError, OutputError
from noyau.jobs import command_line
from noyau.jobs.bench import command as bench_command
from noyau.jobs.check import command as check_command
from noyau.jobs.extract import command as extract_command
from noyau.jobs.optimize import command as optimize_command
from noyau.jobs.profile import command as profile_command
from noyau.version import __version__
from noyau.workers.signals import Ended, raised

_PACKAGES = ("numpy", "ml-dtypes", "rich", "onnx", "onnxruntime", "torch", "numba", "triton", "ziglang")
_STATUSES = "Exit status: 0 right; 1 wrong, racy, or slower than asked; 2 unusable arguments."


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command: a line of help, its arguments, and what it does, which returns the exit status."""

    summary: str
    declare: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit status. Errors of noyau are one line on stderr."""
    _open_ends()
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            with raised():
                return _run(argv)
        except NoyauError as error:
            return _complain(str(error), 2)
        except KeyboardInterrupt:
            return _complain("interrupted", 130)
        except Ended as end:
            return _complain(f"ended by {end.signal.name}", 128 + end.signal)
        except BrokenPipeError:
            _drop_stdout()
            return 141


def _open_ends() -> None:
    """Let a closed stdin, stdout or stderr be the null device, before a file takes its number and prints go into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                end = os.open(os.devnull, os.O_RDWR)  # the least number that is free
                setattr(sys, name, os.fdopen(number if end == number else end, "w" if number else "r", closefd=False))


def _drop_stdout() -> None:
    """What is still to be printed goes nowhere: Python's own flush at exit would complain of it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as stop:  # argparse has printed its message, or the help
        return int(stop.code or 0)
    try:
        status = COMMANDS[arguments.command].run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader went away (`noyau show | head`)
        raise
    except OSError as error:
        if isinstance(error, NoyauError) or error.filename is not None:
            raise
        _drop_stdout()
        raise OutputError(f"what is printed cannot be written: {error.strerror}") from error
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="noyau",
        description="Makes numerical Python and ML models faster with kernels that are checked against float64.",
        epilog=_STATUSES,
    )
    parser.add_argument("--version", action="version", version=f"noyau {__version__}")
    optimize_command = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        command.declare(optimize_command.add_parser(name, help=command.summary, description=command.summary))
    return parser


def _complain(message: str, status: int) -> int:
    """Say it on one line, and pass the status on."""
    print(f"noyau: {command_line.plain(message)}", file=sys.stderr)
    return status


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """As warnings.showwarning, without the line of the source that warns."""
    _complain(f"warning: {message}", 0)


def _declare_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clear", action="store_true", help="remove every built kernel")


def _cache(arguments: argparse.Namespace) -> int:
    from noyau.toolchain import cache

    home, taken = cache.folder(), cache.size_bytes()
    if arguments.clear:
        count = cache.clear()
        print(f"removed {count} file{'' if count == 1 else 's'}, {taken / 2**20:.1f} MiB, from {home}")
    else:
        print(f"{home}: {taken / 2**20:.1f} MiB of at most {cache.LIMIT_BYTES / 2**20:.0f} MiB")
    return 0


def _declare_machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--refresh", action="store_true", help="measure again, though nothing has changed")
    parser.add_argument("--json", action="store_true", help="print the whole record as JSON")
    parser.add_argument("--device", metavar="D", help="cpu, cuda or cuda:1 alone (default: the processor, and a GPU)")


def _machine(arguments: argparse.Namespace) -> int:
    from noyau.jobs.machine import run as machine_run

    return machine_run.run_machine(arguments)


def _declare_nothing(parser: argparse.ArgumentParser) -> None:
    """This command takes no arguments."""


def _doctor(_: argparse.Namespace) -> int:
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


COMMANDS = {
    "optimize": Command(
        "fuse a model, check and time it, write it", optimize_command.declare_optimize, optimize_command.run_optimize
    ),
    "show": Command("a model's groups, reasons and kernels", optimize_command.declare_show, optimize_command.run_show),
    "profile": Command("where a model's time goes", profile_command.declare_profile, profile_command.run_profile),
    "extract": Command("a path as an op of its own", extract_command.declare_extract, extract_command.run_extract),
    "check": Command(
        "what is wrong with a model, an op's kernels, a script or program",
        check_command.declare_check,
        check_command.run_check,
    ),
    "bench": Command(
        "an op's kernels, or functions, timed side by side", bench_command.declare_bench, bench_command.run_bench
    ),
    "demo": Command("the whole job on a small LLaMA", optimize_command.declare_demo, optimize_command.run_demo),
    "machine": Command("what this machine can do, measured", _declare_machine, _machine),
    "cache": Command("show or clear the cache of built kernels", _declare_cache, _cache),
    "doctor": Command("say what noyau finds on this machine", _declare_nothing, _doctor),
}
