"""A function that Dynamo does not look into. It is a file of its own, for torch imports Dynamo, which takes seconds, to
leave a function out of it: only who compiles should wait for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


@torch.compiler.disable  # type: ignore[untyped-decorator]
def call_outside_graph(op: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The call outside of a compiled graph: without a signature nothing tells its results before it runs."""
    return op(*args, **kwargs)
