"""The command `noyau cache`: the size of the disk cache of built kernels; `--clear` empties it."""

from __future__ import annotations

import argparse

from noyau.jobs.command_line import Command


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clear", action="store_true", help="remove every built kernel")


def _run(arguments: argparse.Namespace) -> int:
    from noyau.toolchain import cache

    home, taken = cache.folder(), cache.size_bytes()
    if arguments.clear:
        count = cache.clear()
        print(f"removed {count} file{'' if count == 1 else 's'}, {taken / 2**20:.1f} MiB, from {home}")
    else:
        print(f"{home}: {taken / 2**20:.1f} MiB of at most {cache.LIMIT_BYTES / 2**20:.0f} MiB")
    return 0


COMMAND = Command("show or clear the cache of built kernels", _declare, _run)
