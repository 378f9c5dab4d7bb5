"""Modules of PyTorch: their graphs are cut into kernels that are checked, timed, and put back if they win."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from noyau.errors import MissingExtraError


def job(module: str) -> Any:
    """A module of this folder, imported. MissingExtraError without torch."""
    if find_spec("torch") is None:
        raise MissingExtraError("modules need torch, which is not installed; run: pip install 'noyau-kernels[torch]'")
    return import_module(f"{__name__}.{module}")
