"""The command `noyau`: a table of sub-commands.

Exit status: 0 right, 1 wrong (or slower than asked), 2 unusable arguments, 130 after Ctrl-C, 143 after SIGTERM."""

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noyau.errors import NoyauError
from noyau.jobs import command_line, completion, doctor, mcp
from noyau.jobs.bench import command as bench_command
from noyau.jobs.check import command as check_command
from noyau.jobs.diff import command as diff_command
from noyau.jobs.extract import command as extract_command
from noyau.jobs.optimize import command as optimize_command
from noyau.jobs.profile import command as profile_command
from noyau.jobs.show import command as show_command
from noyau.jobs.stream import command as stream_command
from noyau.text import printable
from noyau.version import __version__
from noyau.workers.signals import Termination, raise_on_signals


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. Errors of noyau are printed as one line on stderr."""
    _open_ends()
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            with raise_on_signals():
                return _run(argv)
        except NoyauError as error:
            return _complain(str(error), 2)
        except KeyboardInterrupt:
            return _complain("interrupted", 130)
        except Termination as end:
            return _complain(f"ended by {end.signal.name}", 128 + end.signal)
        except (BrokenPipeError, SystemExit) as end:  # the reader went away (`noyau show | head`): rich then exits
            if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
                raise
            _drop_stdout()
            return 141
        except MemoryError as error:
            return _complain(f"there is too little memory: {str(error) or 'it is full'}; give smaller sizes", 2)
        except OSError as error:
            if error.filename is not None:
                return _complain(f"{printable(str(error.filename))}: {error.strerror}", 2)
            _drop_stdout()
            return _complain(f"what is printed, or a temporary file, cannot be written: {error.strerror or error}", 2)
        finally:
            command_line.remove_empty_folders()


def _open_ends() -> None:
    """Open the null device for a closed stdin, stdout or stderr, before another file takes its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                end = os.open(os.devnull, os.O_RDWR)  # takes the least free number
                setattr(sys, name, os.fdopen(number if end == number else end, "w" if number else "r", closefd=False))


def _drop_stdout() -> None:
    """Discard buffered output, so that Python's flush at exit does not report the error again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments, unknown = _parser().parse_known_args(argv)
        if unknown:
            arguments.own.error(f"unrecognized arguments: {' '.join(unknown)}")
    except SystemExit as stop:  # argparse has printed its message, or the help
        return int(stop.code or 0)
    os.environ.update(command_line.color_words(arguments.color))  # read by rich and by compilers
    command_line.require_models(arguments)
    status = COMMANDS[arguments.command].run(arguments)
    sys.stdout.flush()
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="noyau",
        description="Makes numerical Python and ML models faster with kernels that are checked against float64.",
        epilog="Exit status: 0 right; 1 wrong, racy, or slower than asked; 2 unusable arguments; 3 not checked.",
    )
    parser.add_argument("--version", action="version", version=f"noyau {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_CommandParser)
    for name, command in COMMANDS.items():
        own = commands.add_parser(name, help=command.summary, description=command.summary)
        command.declare(own)
        command_line.declare_color(own)
        own.set_defaults(own=own, parser=parser)
    return parser


class _CommandParser(argparse.ArgumentParser):
    """The parser of a command, whose options may stand before, between and after its arguments."""

    is_inner = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.register("type", Path, lambda text: Path(command_line.place_of(text)))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        if self.is_inner:
            return super().parse_known_args(args, namespace)
        self.is_inner = True  # parse_known_intermixed_args calls this function twice
        try:
            read, left = super().parse_known_args(args, namespace)  # keeps words after -- as arguments
            return self.parse_known_intermixed_args(args, namespace) if left else (read, left)
        finally:
            self.is_inner = False


def _complain(message: str, status: int) -> int:
    """Print a message as one line on stderr, and return the status."""
    print(f"noyau: {command_line.plain(message)}", file=sys.stderr)
    return status


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning without its source line, in place of warnings.showwarning."""
    _complain(f"warning: {message}", 0)


COMMANDS = {
    "optimize": optimize_command.COMMAND,
    "show": show_command.COMMAND,
    "profile": profile_command.COMMAND,
    "extract": extract_command.COMMAND,
    "check": check_command.COMMAND,
    "diff": diff_command.COMMAND,
    "bench": bench_command.COMMAND,
    "stream": stream_command.COMMAND,
    "mcp": mcp.COMMAND,
    "completion": completion.COMMAND,
    "demo": optimize_command.DEMO,
    "machine": doctor.MACHINE,
    "cache": doctor.CACHE,
    "doctor": doctor.COMMAND,
}
