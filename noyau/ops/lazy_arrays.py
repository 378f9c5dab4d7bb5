"""Arrays that are computed later, as Dask's: a call of an op on one gives others, by the package that knows how."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

# By the package of an array's class: gives the function that calls an op, `(op, arguments, options)`. The top of noyau
# fills it, for what calls them stands above ops.
CALLS: dict[str, Callable[[], Callable[..., Any]]] = {}


def lazy_call(arguments: Iterable[Any]) -> Callable[..., Any] | None:
    """The function that calls an op on such arguments; None where all are there already."""
    for each in arguments:
        find = CALLS.get(type(each).__module__.partition(".")[0])
        if find is not None and hasattr(each, "chunks"):
            return find()
    return None
