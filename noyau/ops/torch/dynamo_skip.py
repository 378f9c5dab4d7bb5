"""A function that Dynamo does not trace. It is a file of its own, since leaving a function out makes torch import
Dynamo, which takes seconds: only those who compile should wait for that."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


@torch.compiler.disable  # type: ignore[untyped-decorator]
def call_outside_graph(op: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call an op outside of a compiled graph: without a signature its results are unknown before it runs."""
    return op(*args, **kwargs)
