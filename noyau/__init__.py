"""Makes ML models faster with generated kernels that are checked against float64."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from noyau.benching.running import bench
    from noyau.checking.ops import check
    from noyau.dispatching.tuning import tune
    from noyau.handwritten.buffers import Buffer
    from noyau.higher_order.making import map, reduce, zip  # noqa: A004  as Python calls them
    from noyau.ops import Op, ReferenceWarning, op
    from noyau.optimizing import Optimized
    from noyau.paths.ends import Between
    from noyau.paths.extracting import Extracted
    from noyau.profiling.records import Profile
    from noyau.references import reference
    from noyau.runtimes.numpy.threads import threads
    from noyau.runtimes.torch.patching import Patched
    from noyau.showing import Shown
    from noyau.torch_modules.explaining import Explained
    from noyau.torch_modules.optimizing import Optimized as OptimizedModule

__version__ = "0.1.0.dev0"
__all__ = [
    "Buffer",
    "Op",
    "ReferenceWarning",
    "__version__",
    "bench",
    "check",
    "explain",
    "extract",
    "load",
    "map",
    "op",
    "optimize",
    "patch",
    "profile",
    "reduce",
    "reference",
    "show",
    "threads",
    "tune",
    "unpatch",
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


@overload
def optimize(model: str | Path, inputs: Any = None, **wishes: Any) -> Optimized: ...


@overload
def optimize(model: Callable[..., Any], inputs: Any, **wishes: Any) -> OptimizedModule: ...


def optimize(model: str | Path | Callable[..., Any], inputs: Any = None, **wishes: Any) -> Any:
    """Fuse the memory-bound paths of an ONNX model, or of a module of PyTorch, into C kernels; keep those that are
    right and win.

    A module is given with the inputs of a call, a tensor or a tuple of them, and `wishes` as
    noyau.torch_modules.optimizing.optimize takes them (dynamic=, rest=, against=, budget_s=, keep=); the result is
    called as the module, and has `.report` and `.save(path)`, which `noyau.load` reads. For a file:

    `wishes` are the fields of `noyau.optimizing.Wishes`: keep="faster", "not-slower" or "all"; dims={"sequence": 128};
    inputs="arrays.npz"; target="native" or a level such as "x86-64-v3"; threads=1; only=[...], drop=[...] of kernels;
    between=(["A", "B"], ["C"]), the ends of the path to work on.
    The result has `.report`, `.save(path)` and `.session()`. With device="cuda" torch hosts the model instead, with
    kernels in Triton: `wishes` are then dims, inputs, seed and those of a module, and the result is called with the
    model's inputs, tensors or arrays, and gives a list of tensors. Raises ModelError for a file that is no model,
    InputError for what is no path and for inputs that do not fit, BuildError where there is no compiler,
    MissingExtraError without onnx or onnxruntime."""
    if callable(model):
        return _modules("optimizing").optimize(model, inputs, **wishes)
    path = _path(model, "noyau.optimize takes a torch.nn.Module or")
    if inputs is not None:
        wishes["inputs"] = inputs
    if wishes.get("device") is not None:
        return _modules("onnx_hosting").optimize_model(path, **wishes)
    from noyau import optimizing

    wishes.pop("device", None)
    return optimizing.optimize(path, optimizing.Wishes(**wishes))


def load(path: str | Path) -> Callable[..., Any]:
    """A module of PyTorch that `noyau.optimize(module, inputs).save(path)` wrote, ready to be called: nothing is timed
    or compiled. Its kernels are code: load what you would run. ModelError for a file that is no such module."""
    return _modules("saving").load(_path(path, "noyau.load takes"))  # type: ignore[no-any-return]


def explain(module: Callable[..., Any], inputs: Any, **wishes: Any) -> Explained:
    """What noyau sees in a module of PyTorch on some inputs: its groups, why it is cut where it is, graph breaks, and
    operators that it does not know; prints itself, and has `.to_json()`. Nothing is built. `wishes`: dynamic=True."""
    return _modules("explaining").explain(module, inputs, **wishes)  # type: ignore[no-any-return]


def _path(given: object, called: str) -> Path:
    """What was given as a path. InputError where it is none."""
    from noyau.arguments import path_of

    return path_of(given, called)


def _modules(name: str) -> Any:
    """A file of noyau.torch_modules. MissingExtraError where there is no torch."""
    from noyau.errors import MissingExtraError

    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("modules are PyTorch's, which is not installed; run: pip install 'noyau[torch]'")
    return importlib.import_module(f"noyau.torch_modules.{name}")


def patch(model: Any) -> Patched:
    """Make the modules of a torch model that compute what an op of `noyau.nn` does call that op, forward and backward:
    norms, gated MLPs, activations, rotary embedding (as transformers writes them), the cross-entropy of a loss.

    The record prints what was swapped, and what was not and why. `noyau.unpatch(model)`, or the end of a
    `with noyau.patch(model):`, puts everything back; the state_dict stays what it is. InputError for what is no
    torch.nn.Module, MissingExtraError where there is no torch."""
    return _patching().patch(model)  # type: ignore[no-any-return]


def unpatch(model: Any) -> None:
    """Put back every module that `noyau.patch` has changed in a torch model. Errors as there."""
    _patching().unpatch(model)


def _patching() -> Any:
    from importlib.util import find_spec

    from noyau.errors import MissingExtraError

    if find_spec("torch") is None:
        raise MissingExtraError("patch() needs PyTorch, which is not installed; run: pip install 'noyau[torch]'")
    return importlib.import_module("noyau.runtimes.torch.patching")


def show(model: str | Path, *, between: Between | None = None) -> Shown:
    """What noyau sees in an ONNX model: its groups, why it is cut where it is, and `.source(kernel)`, each text.

    `between`: only the path from some values to others, (["A", "B"], ["C"]). Raises ModelError for a file that is no
    model, InputError where the ends of the path enclose no graph."""
    from noyau import showing

    return showing.show(_path(model, "noyau.show takes"), between=between)


def extract(model: str | Path, between: Between, **wishes: Any) -> Extracted:
    """The path between some values of an ONNX model, (["A", "B"], ["C"]), as an op: `.save("path.py")` writes its
    reference in NumPy, what it reads in one run of the model beside it, and a C kernel to begin with.

    `wishes`: dims={"sequence": 128} or inputs="arrays.npz" to run it with; seed=0. Raises ModelError for a file that is
    no model, InputError where the ends enclose no graph or the model does not run, UnsupportedError for a path with an
    operator that noyau does not look into, MissingExtraError without onnx or onnxruntime."""
    from noyau.paths import extracting

    return extracting.extract(_path(model, "noyau.extract takes"), between, **wishes)


def profile(model: str | Path, **wishes: Any) -> Profile:
    """Where the time of an ONNX model goes in onnxruntime, by operator and by fusable path, its memory, and what fusing
    could gain at most. Nothing is compiled.

    `wishes` are the fields of `noyau.profiling.models.Wishes`: dims={"sequence": 128}, or {"sequence": [1, 128]} to run
    with one after the other; inputs="arrays.npz"; threads=1; between=(["A"], ["C"]), the ends of one path; top=12 rows.
    The result prints itself and has `.at`, a record for each of the sizes, and `.to_json()`. Raises ModelError for a
    file that is no model or that onnxruntime does not run, InputError for inputs that do not fit, OutputError where
    there is no room for the profile, MissingExtraError without onnx or onnxruntime."""
    from noyau.profiling import models

    return models.profile(_path(model, "noyau.profile takes"), models.Wishes(**wishes))


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext noyau` in a notebook: %%check then runs a cell and watches every kernel in it."""
    from noyau.scripts.magic import register

    register(shell)
