"""Operators under vmap: one call after another.

A signature may leave room for one more leading axis (`*batch`), but an axis that a reference counts from the front, or
sums over with all others, would be another one then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Results = tuple[Any, Any]  # what is returned, and the axis of the batch in each


def batched_by_loop(call: Callable[..., Any], info: Any, dims: Any, *args: Any, **constants: Any) -> Results:
    """The results for batched arguments, the axis of the batch in front, by a call for each of it.

    An empty batch is refused, for nothing tells what it would give."""
    if not info.batch_size:
        raise RuntimeError("vmap over no cells at all: there is nothing to call the operator on")
    parts = [
        each.unbind(dim) if dim is not None else (each,) * info.batch_size for each, dim in zip(args, dims, strict=True)
    ]
    made = [call(*given, **constants) for given in zip(*parts, strict=True)]
    if isinstance(made[0], tuple):
        return _in_front(tuple(torch.stack(results) for results in zip(*made, strict=True)))
    return _in_front(torch.stack(made))


def _in_front(made: Any) -> Results:
    return made, (0,) * len(made) if isinstance(made, tuple) else 0
