"""The budget of a clock: a script that is checked tells nobody how fast it is, so nothing in it is timed for long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_ASKED: list[object] = []  # of the whole process, as what stands in the place of something is while a script is checked


@contextmanager
def briefly() -> Iterator[None]:
    """Clocks that ask `allowed_s` have no time in the meantime: they take the fewest samples that they can do with."""
    request = object()
    _ASKED.append(request)
    try:
        yield
    finally:
        _ASKED.remove(request)


def is_brief() -> bool:
    """Whether somebody asks for that now."""
    return bool(_ASKED)


def allowed_s(budget_s: float) -> float:
    """The seconds of a budget that may be spent."""
    return 0.0 if is_brief() else budget_s
