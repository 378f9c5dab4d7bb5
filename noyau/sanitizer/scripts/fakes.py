"""Stand-ins while a script runs: how one is put into its place."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

_MISSING = object()


def patch(undone: ExitStack, holder: Any, name: str, value: Any) -> None:
    """`holder.name` is `value`, until `undone` ends."""
    before = vars(holder).get(name, _MISSING)
    if before is _MISSING:
        undone.callback(delattr, holder, name)
    else:
        undone.callback(setattr, holder, name, before)
    setattr(holder, name, value)
