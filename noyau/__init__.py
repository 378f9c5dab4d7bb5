"""Makes ML models faster with generated kernels that are checked against float64."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noyau.optimizing import Optimized
    from noyau.paths.ends import Between
    from noyau.showing import Shown

__version__ = "0.1.0.dev0"
__all__ = ["__version__", "optimize", "show"]

logging.getLogger("noyau").addHandler(logging.NullHandler())


def optimize(model: str | Path, **wishes: Any) -> Optimized:
    """Fuse an ONNX model's memory-bound paths into C kernels; keep those that are right and win.

    `wishes` are the fields of `noyau.optimizing.Wishes`: keep="faster", "not-slower" or "all"; dims={"sequence": 128};
    inputs="arrays.npz"; target="native" or a level such as "x86-64-v3"; threads=1; only=[...], drop=[...] of kernels;
    between=(["A", "B"], ["C"]), the ends of the path to work on.
    The result has `.report`, `.save(path)` and `.session()`. Raises ModelError for a file that is no model, InputError
    for inputs that do not fit, BuildError where there is no compiler, MissingExtraError without onnx or onnxruntime."""
    from noyau import optimizing

    return optimizing.optimize(model, optimizing.Wishes(**wishes))


def show(model: str | Path, *, between: Between | None = None) -> Shown:
    """What noyau sees in an ONNX model: its groups, why it is cut where it is, and `.source(kernel)`, each text.

    `between`: only the path from some values to others, (["A", "B"], ["C"]). Raises ModelError for a file that is no
    model, InputError where the ends of the path enclose no graph."""
    from noyau import showing

    return showing.show(model, between=between)
