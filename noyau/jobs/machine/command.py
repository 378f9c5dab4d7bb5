"""The command `noyau machine`."""

from __future__ import annotations

import argparse

from noyau.jobs.command_line import Command


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--refresh", action="store_true", help="measure again, though nothing has changed")
    parser.add_argument("--json", action="store_true", help="print the whole record as JSON")
    parser.add_argument("--device", metavar="D", help="cpu, cuda or cuda:1 alone (default: the processor, and a GPU)")


def _run(arguments: argparse.Namespace) -> int:
    from noyau.jobs.machine import run as machine_run

    return machine_run.run_machine(arguments)


COMMAND = Command("what this machine can do, measured", _declare, _run)
