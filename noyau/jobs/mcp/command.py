"""The command `noyau mcp`."""

from __future__ import annotations

import argparse

from noyau.errors import MissingExtraError
from noyau.jobs.command_line import Command


def _declare(parser: argparse.ArgumentParser) -> None:
    limit = "seconds that one call may take (default: 600)"
    parser.add_argument("--time", type=float, default=600.0, metavar="S", help=limit)


def _run(arguments: argparse.Namespace) -> int:
    try:
        from noyau.jobs.mcp.server import server
    except ImportError:
        remedy = "pip install 'noyau-kernels[mcp]'"
        raise MissingExtraError(f"noyau mcp needs the package mcp, which is not installed; run: {remedy}") from None
    server(arguments.time).run("stdio")
    return 0


COMMAND = Command("tools for agents, over stdin and stdout (MCP)", _declare, _run)
