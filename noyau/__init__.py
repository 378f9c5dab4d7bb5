"""Makes ML models faster with generated kernels that are checked against float64."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from noyau.errors import InputError, MissingExtraError
from noyau.ops import foreign_arrays
from noyau.text import path_of
from noyau.version import __version__

if TYPE_CHECKING:
    import onnx

    from noyau.engines import reductions
    from noyau.engines.cuda_engine import overlap, split
    from noyau.engines.reduction import reduction
    from noyau.engines.sql.functions import create_function
    from noyau.engines.stream import stream
    from noyau.hosts.numpy.fast_calls import threads
    from noyau.hosts.onnxruntime.path_ends import Between
    from noyau.jobs.bench.autotune import tune
    from noyau.jobs.bench.run import bench
    from noyau.jobs.check.run import check
    from noyau.jobs.extract.run import Extraction
    from noyau.jobs.optimize.onnx.options import ModelKeywords
    from noyau.jobs.optimize.onnx.run import OptimizedModel
    from noyau.jobs.optimize.torch.explain import ModuleExplanation
    from noyau.jobs.optimize.torch.onnx_model import HostedModel
    from noyau.jobs.optimize.torch.options import HostedKeywords, ModuleKeywords
    from noyau.jobs.optimize.torch.run import OptimizedModule as OptimizedModule
    from noyau.jobs.profile.record import Profile, Wall
    from noyau.jobs.profile.run import ProfileKeywords
    from noyau.jobs.show.model import ShownModel
    from noyau.kernels.reference import reference
    from noyau.kernels.user_kernel import Buffer
    from noyau.nn.torch.patch import PatchRecord
    from noyau.ops.higher_order.ops import map, reduce, zip  # noqa: A004  as Python calls them
    from noyau.ops.op import Op, ReferenceWarning, op
    from noyau.timing.ranges import range  # noqa: A004

__all__ = [
    "Buffer", "Op", "ReferenceWarning", "__version__", "bench", "check", "create_function", "explain", "extract",
    "load", "map", "op", "optimize", "overlap", "patch", "profile", "range", "reduce", "reduction", "reductions",
    "reference", "session", "show", "split", "stream", "threads", "tune", "unpatch", "zip",
]  # fmt: skip

# Public names that stand in modules which are imported when the first of them is asked for.
_ELSEWHERE = {
    **dict.fromkeys(("Op", "ReferenceWarning", "op"), "noyau.ops.op"),
    **dict.fromkeys(("map", "reduce", "zip"), "noyau.ops.higher_order.ops"),
    "Buffer": "noyau.kernels.user_kernel",
    "bench": "noyau.jobs.bench.run",
    "check": "noyau.jobs.check.run",
    "create_function": "noyau.engines.sql.functions",
    "overlap": "noyau.engines.cuda_engine",
    "range": "noyau.timing.ranges",
    "reduction": "noyau.engines.reduction",
    "reductions": "noyau.engines.reductions",
    "reference": "noyau.kernels.reference",
    "split": "noyau.engines.cuda_engine",
    "stream": "noyau.engines.stream",
    "threads": "noyau.hosts.numpy.fast_calls",
    "tune": "noyau.jobs.bench.autotune",
}

foreign_arrays.CALLS["dask"] = lambda: importlib.import_module("noyau.engines.dask_arrays").call
logging.getLogger("noyau").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name in ("nn", "reductions"):
        return importlib.import_module(_ELSEWHERE.get(name, "noyau.nn"))
    if name not in _ELSEWHERE:
        raise AttributeError(f"noyau has no {name!r}", name=name, obj=sys.modules[__name__])  # Python names the nearest
    value = getattr(importlib.import_module(_ELSEWHERE[name]), name)
    if name == "range":  # a range costs less than 1 us, and this lookup ten times as much
        globals()[name] = value
    return value


@overload
def optimize(
    model: str | Path | onnx.ModelProto,
    inputs: str | Path | None = None,
    *,
    device: None = None,
    **options: Unpack[ModelKeywords],
) -> OptimizedModel: ...


@overload
def optimize(
    model: str | Path | onnx.ModelProto, inputs: Any = None, *, device: str, runtime: str, **options: Any
) -> OptimizedModel: ...


@overload
def optimize(
    model: str | Path, inputs: str | Path | None = None, *, device: str, **options: Unpack[HostedKeywords]
) -> HostedModel: ...


@overload
def optimize(model: Callable[..., Any], inputs: Any, **options: Unpack[ModuleKeywords]) -> OptimizedModule: ...


def optimize(model: str | Path | onnx.ModelProto | Callable[..., Any], inputs: Any = None, **options: Any) -> Any:
    """Fuse the memory-bound paths of an ONNX model or a PyTorch module into kernels; keep those that are right and win.

    A module is given with the inputs of a call, a tensor or a tuple of them, and `options` as
    noyau.jobs.optimize.torch.run.optimize takes them (dynamic=, rest=, against=, budget_s=, keep=); the result is
    called as the module, and has `.report` and `.save(path)`, which `noyau.load` reads. For a file or a ModelProto:

    `options` are the fields of `noyau.jobs.optimize.onnx.options.OptimizeOptions`: keep="faster", "not-slower" or
    "all"; dims={"sequence": 128}; fix_dims={"batch": 1}; inputs="arrays.npz" or "samples.py"; target="native" or a
    level such as "x86-64-v3"; threads=1; only=[...], drop=[...] of kernels; between=(["A", "B"], ["C"]), the ends of
    the path to work on; weights="int8" and budget="same-tokens" or 1e-2 for products with weights in few bits. The
    result has `.report`, `.save(path)` and `.session()`. With device="cuda" torch hosts the model instead, with kernels
    in Triton: `options` are then dims, inputs, seed and those of a module, and the result is called with the model's
    inputs, tensors or arrays, and gives a list of tensors; unless runtime="onnxruntime" stands beside it, for a library
    that has kernels of onnxruntime's CUDA provider too. Raises ModelError for a file that is no model, InputError for
    what is no path and for inputs that do not fit, BuildError where there is no compiler, MissingExtraError without
    onnx or onnxruntime."""
    if callable(model):
        return _of_torch("run").optimize(model, inputs, **options)
    is_proto = type(model).__name__ == "ModelProto"
    path = Path() if is_proto else path_of(model, "noyau.optimize takes a torch.nn.Module, an onnx.ModelProto or")
    if inputs is not None:
        options["inputs"] = inputs
    runtime = options.pop("runtime", "torch")
    if runtime not in ("torch", "onnxruntime"):
        raise InputError(f"runtime={runtime!r} is none of torch, onnxruntime")
    if options.get("device") is not None and runtime == "torch":
        if is_proto:
            raise InputError(f"with device={options['device']!r} noyau.optimize takes the path of a model: save it")
        return _of_torch("onnx_model").optimize_model(path, **options)
    from noyau.jobs.optimize.onnx import options as onnx_options
    from noyau.jobs.optimize.onnx import run as onnx_run

    wishes = onnx_options.OptimizeOptions(**options | {"device": options.get("device") or "cpu"})
    return onnx_run.optimize_proto(model, wishes) if is_proto else onnx_run.optimize(path, wishes)


def load(path: str | Path) -> Callable[..., Any]:
    """A module of PyTorch that `noyau.optimize(module, inputs).save(path)` wrote, ready to be called: nothing is timed
    or compiled. Its kernels are code: load what you would run. ModelError for a file that is no such module."""
    return _of_torch("saved_module").load(path_of(path, "noyau.load takes"))  # type: ignore[no-any-return]


def session(model: str | Path, *, threads: int = 0, device: str = "cpu") -> Any:
    """An onnxruntime session of a model on the CPU, or with device="cuda" on a GPU, with the library of kernels that
    `noyau optimize` wrote beside it, where it is there; `threads`: 0 leaves their number to onnxruntime. ModelError for
    a file that is no model, BuildError where the library does not load, MissingExtraError without onnxruntime,
    DeviceError where it has no provider of the device, or that does not start."""
    from noyau.hosts.onnxruntime.model_files import library_path
    from noyau.hosts.onnxruntime.sessions import open_session

    path = path_of(model, "noyau.session takes")
    library = library_path(path)
    return open_session(path, library if library.exists() else None, threads=threads, device=device)


def explain(module: Callable[..., Any], inputs: Any, *, dynamic: bool | None = None) -> ModuleExplanation:
    """The view of a module of PyTorch on some inputs: its groups, the reasons of its cuts, graph breaks, operators that
    noyau does not know, and where the wall time of each graph goes; prints itself, and has `.to_json()`. Nothing is
    built. `dynamic`: as in torch.compile."""
    return _of_torch("explain").explain(module, inputs, dynamic=dynamic)  # type: ignore[no-any-return]


def _of_torch(module: str) -> Any:
    """A module of noyau.jobs.optimize.torch. MissingExtraError where there is no torch."""
    from noyau.jobs.optimize.torch import job

    return job(module)


def patch(model: Any) -> PatchRecord:
    """Replace the forward and backward of a torch model's modules by ops of `noyau.nn` where these compute the same:
    norms, gated MLPs, activations, rotary embedding (as transformers writes them), the cross-entropy of a loss.

    The record prints what was swapped, and what was not and why. `noyau.unpatch(model)`, or the end of a `with
    noyau.patch(model):`, restores all modules; the state_dict does not change. InputError for a model that is no
    torch.nn.Module, MissingExtraError without torch."""
    return _patching().patch(model)  # type: ignore[no-any-return]


def unpatch(model: Any) -> None:
    """Restore every module of a torch model that `noyau.patch` has changed. Errors as in `patch`."""
    _patching().unpatch(model)


def _patching() -> Any:
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("patch() needs torch, which is not installed; run: pip install 'noyau-kernels[torch]'")
    return importlib.import_module("noyau.nn.torch.patch")


def show(model: str | Path, *, between: Between | None = None) -> ShownModel:
    """The view of an ONNX model: its groups, why it is cut where it is, and `.source(kernel)`, each text.

    `between`: only the path from some values to others, (["A", "B"], ["C"]). Raises ModelError for a file that is no
    model, InputError where the ends of the path enclose no graph."""
    from noyau.jobs.show import model as show_model

    return show_model.show(path_of(model, "noyau.show takes"), between=between)


def extract(
    model: str | Path,
    between: Between,
    *,
    dims: Mapping[str, int] | None = None,
    inputs: str | Path | None = None,
    seed: int = 0,
) -> Extraction:
    """The path between some values of an ONNX model, (["A", "B"], ["C"]), as an op: `.save("path.py")` writes its
    reference in NumPy, what it reads in one run of the model beside it, and a C kernel to begin with.

    dims={"sequence": 128} or inputs="arrays.npz" to run it with. Raises ModelError for a file that is
    no model, InputError where the ends enclose no graph or the model does not run, UnsupportedError for a path with an
    operator that noyau does not look into, MissingExtraError without onnx or onnxruntime."""
    from noyau.jobs.extract import run as extract_run

    return extract_run.extract(path_of(model, "noyau.extract takes"), between, dims=dims, inputs=inputs, seed=seed)


@overload
def profile(model: str | Path, **options: Unpack[ProfileKeywords]) -> Profile: ...


@overload
def profile(model: Callable[..., Any], inputs: Any) -> Wall: ...


def profile(model: str | Path | Callable[..., Any], inputs: Any = None, **options: Any) -> Any:
    """The time of an ONNX model in onnxruntime by operator and by fusable path, its memory, and what fusing
    could gain at most. Nothing is compiled. Of a module of torch, compiled or not, with the inputs of a call: which
    shares of its wall time are kernels, products among them, gaps and waiting, and what would help next.

    `options` are the fields of `noyau.jobs.profile.run.ProfileOptions`: dims={"sequence": 128}, or
    {"sequence": [1, 128]} to run with one after the other; inputs="arrays.npz"; threads=1; between=(["A"], ["C"]), the
    ends of one path; top=12. The result prints itself and has `.at`, a record for each of the sizes, and `.to_json()`.
    Raises ModelError for a file that is no model or that onnxruntime does not run, InputError for inputs that do not
    fit, OutputError where there is no room for the profile, MissingExtraError without onnx or onnxruntime."""
    if callable(model):
        return _of_torch("explain").profile(model, inputs, **options)
    from noyau.jobs.profile import run as profile_run

    wishes = profile_run.ProfileOptions(inputs=inputs, **options)
    return profile_run.profile(path_of(model, "noyau.profile takes"), wishes)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext noyau` in a notebook: %%check then runs a cell and watches every kernel in it."""
    from noyau.jobs.check.command import register

    register(shell)
