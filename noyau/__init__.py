"""Makes ML models faster with generated kernels that are checked against float64."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noyau.benching.running import bench
    from noyau.checking.ops import check
    from noyau.dispatching.tuning import tune
    from noyau.handwritten.buffers import Buffer
    from noyau.higher_order.making import map, reduce, zip
    from noyau.ops import Op, ReferenceWarning, op
    from noyau.optimizing import Optimized
    from noyau.paths.ends import Between
    from noyau.paths.extracting import Extracted
    from noyau.profiling.records import Profile
    from noyau.references import reference
    from noyau.runtimes.numpy.threads import threads
    from noyau.showing import Shown

__version__ = "0.1.0.dev0"
__all__ = [
    "Buffer",
    "Op",
    "ReferenceWarning",
    "__version__",
    "bench",
    "check",
    "extract",
    "map",
    "op",
    "optimize",
    "profile",
    "reduce",
    "reference",
    "show",
    "threads",
    "tune",
    "zip",
]

# Public names that stand in modules which are imported when the first of them is asked for.
_ELSEWHERE = {
    "Buffer": "noyau.handwritten.buffers",
    "Op": "noyau.ops",
    "ReferenceWarning": "noyau.ops",
    "bench": "noyau.benching.running",
    "check": "noyau.checking.ops",
    "map": "noyau.higher_order.making",
    "op": "noyau.ops",
    "reduce": "noyau.higher_order.making",
    "reference": "noyau.references",
    "threads": "noyau.runtimes.numpy.threads",
    "tune": "noyau.dispatching.tuning",
    "zip": "noyau.higher_order.making",
}

logging.getLogger("noyau").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"noyau has no {name!r}")
    return getattr(importlib.import_module(_ELSEWHERE[name]), name)


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


def extract(model: str | Path, between: Between, **wishes: Any) -> Extracted:
    """The path between some values of an ONNX model, (["A", "B"], ["C"]), as an op: `.save("path.py")` writes its
    reference in NumPy, what it reads in one run of the model beside it, and a C kernel to begin with.

    `wishes`: dims={"sequence": 128} or inputs="arrays.npz" to run it with; seed=0. Raises ModelError for a file that is
    no model, InputError where the ends enclose no graph or the model does not run, UnsupportedError for a path with an
    operator that noyau does not look into, MissingExtraError without onnx or onnxruntime."""
    from noyau.paths import extracting

    return extracting.extract(model, between, **wishes)


def profile(model: str | Path, **wishes: Any) -> Profile:
    """Where the time of an ONNX model goes in onnxruntime, by operator and by fusable path, its memory, and what fusing
    could gain at most. Nothing is compiled.

    `wishes` are the fields of `noyau.profiling.models.Wishes`: dims={"sequence": 128}, or {"sequence": [1, 128]} to run
    with one after the other; inputs="arrays.npz"; threads=1; between=(["A"], ["C"]), the ends of one path; top=12 rows.
    The result prints itself and has `.at`, a record for each of the sizes, and `.to_json()`. Raises ModelError for a
    file that is no model or that onnxruntime does not run, InputError for inputs that do not fit, OutputError where
    there is no room for the profile, MissingExtraError without onnx or onnxruntime."""
    from noyau.profiling import models

    return models.profile(model, models.Wishes(**wishes))
