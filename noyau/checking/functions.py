"""Functions that are no ops: what `noyau.check` does with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from noyau.checking.findings import Checked
from noyau.errors import MissingExtraError, SignatureError
from noyau.ops import Op


def of_torch(
    function: Any,
    args: Sequence[Any] | None,
    reference: Callable[..., Any] | None,
    tolerance: float | None,
    seed: int,
) -> Checked:
    """The check of a function of torch. SignatureError for what is none, MissingExtraError without torch."""
    if isinstance(function, Op) or not callable(function) or args is None or reference is None:
        told = "an op alone, or a function of torch: noyau.check(function, (x, y), reference=f)"
        raise SignatureError(f"noyau.check takes {told}; it was given {function!r}")
    try:
        from noyau.checking.torch_functions import check_function
    except ModuleNotFoundError as fault:
        raise MissingExtraError("torch is not installed; run: pip install 'noyau[torch]'") from fault
    return check_function(function, args, reference, tolerance=tolerance, seed=seed)
