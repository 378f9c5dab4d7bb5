"""Optimised modules as files: a zip of a graph as JSON, tensors as bytes, kernels as text and as built libraries.

The graph is for inference, by torch.export. Nothing in a file is pickled. But kernels are code: libraries are opened
and Triton texts executed when a file is read, and kernels run when the module is called. So load only files whose code
you would run."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.utils import _pytree as pytree

from noyau.codegen.language import languages_for
from noyau.dtypes import DType, of_array
from noyau.errors import BuildError, InputError, ModelError, NoyauError, UnsupportedError, first_line, reason_of, warn
from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.numpy.fast_calls import Argument
from noyau.hosts.torch.modules.executor import Boxed, copy_graph, eager
from noyau.hosts.torch.modules.graph_json import device_here, graph_from_json, graph_to_json
from noyau.jobs.optimize.cuda.saved_kernels import CallForm, reopen
from noyau.jobs.optimize.torch.candidates import KernelEnds, library_of, open_kernel
from noyau.jobs.report.text import new_file
from noyau.text import printable
from noyau.timing.machine import this_machine
from noyau.toolchain.c import compiler as c_compiler
from noyau.version import __version__

FORMAT = 1
_MANIFEST = "noyau.json"
_BY_NAME = {str(dtype): dtype for dtype in TO_TORCH.values()}
_LARGEST_BYTES = 64 << 20  # the size limit of the manifest
_MOST_KERNELS = 10_000
_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class SavedKernel:
    """A kernel in places with equal scalars: its name, text, library, and the types of its inputs and results. On a GPU
    it has no library, its scalars are literals in the text, and `device` is the form of its call."""

    name: str
    text: str
    library: Path | None
    ends: KernelEnds
    scalars: tuple[np.ndarray | None, ...]
    device: CallForm | None = None


def save(path: Path, exported: ExportedModule, program: fx.Graph, fused: Mapping[Any, SavedKernel]) -> None:
    """Write a module, whole or not at all: the graph without kernels and the graph with them; `fused` maps each
    function in the latter to its kernel. OutputError if the file cannot be written, UnsupportedError if the format
    cannot express the graph."""
    places = {target: str(number) for number, target in enumerate(fused)}
    kernels = {str(number): piece for number, piece in enumerate(fused.values())}
    manifest = {
        "format": FORMAT,
        "noyau": __version__,
        "torch": torch.__version__,
        "level": this_machine().level,
        "layout": asdict(exported.layout),
        "plain": graph_to_json(exported.program, {}),
        "fused": graph_to_json(program, places),
        "kernels": {name: _kernel_json(piece) for name, piece in kernels.items()},
        "tensors": {name: _form(tensor) for name, tensor in exported.tensors.items()},
    }
    with new_file(path) as fresh, zipfile.ZipFile(fresh, "x", zipfile.ZIP_STORED) as file:
        file.writestr(_MANIFEST, json.dumps(manifest))
        for name, piece in kernels.items():
            file.writestr(f"kernels/{name}.{'c' if piece.library else 'py'}", piece.text)
            if piece.library is not None:
                file.writestr(f"kernels/{name}.so", piece.library.read_bytes())
        for number, tensor in enumerate(exported.tensors.values()):
            file.writestr(f"tensors/{number}", _bytes(tensor))


def _kernel_json(piece: SavedKernel) -> dict[str, Any]:
    if piece.library is None:
        assert piece.device is not None
        text = hashlib.sha256(piece.text.encode()).hexdigest()
        return {"name": piece.name, "language": "triton", "text": text, **asdict(piece.device)}
    return {
        "name": piece.name,
        "inputs": [[end.dtype.value, end.rank] for end in piece.ends.inputs],
        "results": piece.ends.results,
        "scalars": [None if each is None else [of_array(each).value, each.tobytes().hex()] for each in piece.scalars],
        "text": hashlib.sha256(piece.text.encode()).hexdigest(),
        "library": hashlib.sha256(piece.library.read_bytes()).hexdigest(),
    }


def _form(tensor: torch.Tensor) -> dict[str, Any]:
    form = {"dtype": str(tensor.dtype), "shape": list(tensor.shape)}
    return form if tensor.device.type == "cpu" else {**form, "device": str(tensor.device)}


def _bytes(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().contiguous().cpu()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def load(path: Path) -> Callable[..., Any]:
    """Load a file that `save` wrote, ready to be called: nothing is timed, nothing built unless for another machine.

    For another processor level, or if a library does not load, kernels are built from their text; if that fails, the
    module runs on torch's kernels alone; one warning says so. ModelError for a file of another kind or format, or a
    damaged file."""
    try:
        with zipfile.ZipFile(path) as file:
            return _load(path, file)
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        if isinstance(error, NoyauError):
            raise
        raise ModelError(f"{path} is no module that noyau saved: {printable(reason_of(error))}") from error


def _load(path: Path, file: zipfile.ZipFile) -> Callable[..., Any]:
    manifest = _manifest(path, file)
    try:
        layout = _layout(manifest["layout"])
        tensors = {
            name: _tensor(file.read(f"tensors/{number}"), form)
            for number, (name, form) in enumerate(manifest["tensors"].items())
        }
        if len(entries := manifest["kernels"]) > _MOST_KERNELS:
            raise ValueError(f"{len(entries)} kernels are more than a module has")
        on_gpu = {name for name, each in entries.items() if each.get("language") in languages_for(gpu=True)}
        texts = {name: file.read(f"kernels/{name}.{'py' if name in on_gpu else 'c'}").decode() for name in entries}
        libraries = {name: file.read(f"kernels/{name}.so") for name in entries if name not in on_gpu}
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise ModelError(f"{path} is damaged: {printable(repr(error))}") from error
    for name, each in entries.items():
        for part, content in (("text", texts[name].encode()), ("library", libraries.get(name))):
            if content is not None and hashlib.sha256(content).hexdigest() != each.get(part):
                raise ModelError(f"{path} is damaged: the {part} of the kernel {printable(str(name))} was changed")
    here = manifest.get("level") == this_machine().level
    try:
        kernels = {
            name: reopen(each, texts[name])
            if name in on_gpu
            else _kernel(each, texts[name], libraries[name] if here else None)
            for name, each in entries.items()
        }
        program = graph_from_json(manifest["fused"], kernels)
    except BuildError as error:
        warn(f"{path} runs on torch's kernels alone: {error}")
        program = graph_from_json(manifest["plain"], {})
    else:
        if not here and libraries:
            warn(f"{path} was written for {manifest.get('level')}; its kernels were built anew for this machine")
    try:
        return runnable(program, layout, tensors)
    except (ValueError, NotImplementedError, KeyError, TypeError) as error:
        message = "what it takes or gives is of a class that is not registered here: import the package that defines it"
        raise ModelError(f"{path}: {message} ({printable(str(error))})") from error


def _manifest(path: Path, file: zipfile.ZipFile) -> dict[str, Any]:
    if file.getinfo(_MANIFEST).file_size > _LARGEST_BYTES:
        raise ModelError(f"{path} is damaged: its list of contents is too large")
    try:
        manifest = json.loads(file.read(_MANIFEST))
    except ValueError as error:
        raise ModelError(f"{path} is damaged: {printable(str(error))}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        version = printable(str(manifest.get("noyau"))) if isinstance(manifest, dict) else "another program"
        raise ModelError(f"{path} was written in another format, by noyau {version}; save it again with {__version__}")
    return manifest


def _layout(fields: Mapping[str, Any]) -> CallLayout:
    extents = tuple(None if each is None else tuple(each) for each in fields["extents"])
    inputs, outputs, forms = tuple(fields["inputs"]), tuple(fields["outputs"]), fields.get("forms", ())
    if forms and len(forms) != len(extents):
        raise ValueError(f"{len(forms)} dtypes are not those of {len(extents)} arguments")
    pairs = tuple(None if each is None else (str(each[0]), str(each[1])) for each in forms)
    return CallLayout(inputs, outputs, extents, str(fields["takes"]), str(fields["gives"]), pairs)


def _tensor(content: bytes, form: Mapping[str, Any]) -> torch.Tensor:
    dtype, shape = _BY_NAME[form["dtype"]], [int(extent) for extent in form["shape"]]
    if min(shape, default=0) < 0 or len(content) != math.prod(shape) * dtype.itemsize:
        raise ValueError("a tensor has not as many bytes as its shape says")
    flat = torch.frombuffer(bytearray(content), dtype=dtype) if content else torch.empty(0, dtype=dtype)
    return flat.reshape(shape).to(device_here(str(form.get("device", "cpu"))))


def _kernel(fields: Mapping[str, Any], text: str, library: bytes | None) -> Callable[..., Any]:
    """A kernel of the file, from its library, or built from its text. BuildError if neither works."""
    try:
        inputs = tuple(Argument(DType(dtype), int(rank)) for dtype, rank in fields["inputs"])
        ends = KernelEnds(inputs, int(fields["results"]))
        scalars = [
            None if each is None else np.frombuffer(bytes.fromhex(each[1]), DType(each[0]).numpy).reshape(())
            for each in fields["scalars"]
        ]
        name = str(fields["name"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"a kernel of the file cannot be read: {printable(repr(error))}") from error
    if library is not None:
        with contextlib.suppress(BuildError):
            return open_kernel(name, _on_disk(library), ends, scalars)
    return open_kernel(name, library_of(text), ends, scalars)


def _on_disk(library: bytes) -> Path:
    """A library as a file, which the system's loader needs; it is deleted when the process ends."""
    if not _FOLDERS:
        _FOLDERS.append(tempfile.TemporaryDirectory(prefix="noyau-"))
    path = Path(_FOLDERS[0].name) / f"{hashlib.sha256(library).hexdigest()}{c_compiler.LIBRARY_SUFFIX}"
    if not path.exists():
        path.write_bytes(library)
    return path


@dataclass(frozen=True, slots=True)
class CallLayout:
    """Layout of a graph's call. `inputs`: for each placeholder, the name of a tensor of the module, or None for the
    next argument; `outputs`: for each result, the name of the module's tensor that it updates, or None if it is
    returned; `extents`: of each argument, None if it is no tensor, or for an extent that may vary; `takes` and `gives`:
    how arguments and results nest, in torch's spelling; `forms`: dtype and device type of each argument, None if it is
    no tensor; empty in files of older versions."""

    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    extents: tuple[tuple[int | None, ...] | None, ...]
    takes: str
    gives: str
    forms: tuple[tuple[str, str] | None, ...] = ()


@dataclass(frozen=True, slots=True)
class ExportedModule:
    """A module's graph, with its own tensors."""

    program: fx.Graph
    layout: CallLayout
    tensors: Tensors


def export(module: torch.nn.Module, args: Sequence[Any], dynamic: bool) -> ExportedModule:
    """Export the graph of a module for inference, with operators at the level of torch's kernels. UnsupportedError,
    with torch's first line, if torch cannot export it, for data-dependent control flow for example."""
    shapes = pytree.tree_map(_free, tuple(args)) if dynamic else None
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", r".*LeafSpec.*deprecated", FutureWarning)  # torch warns of its own use
            exported = torch.export.export(module, tuple(args), dynamic_shapes=shapes)
            exported = exported.run_decompositions({})
    except Exception as error:
        message = f"torch cannot export {type(module).__name__}, so it cannot be saved: {first_line(error)}"
        raise UnsupportedError(message) from error
    names = {spec.target for spec in exported.graph_signature.input_specs if spec.kind.name != "USER_INPUT"}
    every = {**exported.state_dict, **exported.constants}
    tensors = {str(name): every[name].detach() for name in names}
    return ExportedModule(exported.graph_module.graph, _call_layout(exported), tensors)


def _free(value: Any) -> Any:
    return dict.fromkeys(range(value.dim()), torch.export.Dim.AUTO) if isinstance(value, torch.Tensor) else None


def _call_layout(exported: Any) -> CallLayout:
    signature = exported.graph_signature
    if any(spec.kind.name in ("CUSTOM_OBJ", "TOKEN") for spec in signature.input_specs):
        raise UnsupportedError("a module with objects that are no tensors cannot be saved")
    inputs = tuple(None if spec.kind.name == "USER_INPUT" else str(spec.target) for spec in signature.input_specs)
    outputs = tuple(None if spec.kind.name == "USER_OUTPUT" else str(spec.target) for spec in signature.output_specs)
    arguments = [node for node in exported.graph.nodes if node.op == "placeholder"]
    fakes = [node.meta.get("val") for node, name in zip(arguments, inputs, strict=True) if name is None]
    takes, gives = (pytree.treespec_dumps(spec) for spec in (exported.call_spec.in_spec, exported.call_spec.out_spec))
    return CallLayout(inputs, outputs, tuple(map(_extents, fakes)), takes, gives, tuple(map(_dtype_and_place, fakes)))


def _extents(fake: Any) -> tuple[int | None, ...] | None:
    if not isinstance(fake, torch.Tensor):
        return None
    return tuple(int(each) if isinstance(each, int) else each.node.maybe_as_int() for each in fake.shape)


def _dtype_and_place(fake: Any) -> tuple[str, str] | None:
    return (str(fake.dtype).removeprefix("torch."), fake.device.type) if isinstance(fake, torch.Tensor) else None


def runnable(program: fx.Graph, layout: CallLayout, tensors: Tensors) -> Callable[..., Any]:
    """The graph as a function of the module's arguments. InputError for arguments of another form, shape or dtype, or
    on another kind of device; tensors of the module that the graph updates are updated."""
    forms = layout.forms or (None,) * len(layout.extents)
    slowly, known = eager(fx.GraphModule(torch.nn.Module(), copy_graph(program)), []), dict[torch.device, Boxed]()
    repeats = all(each is not None and None not in each for each in layout.extents)
    places = [at for at, name in enumerate(layout.inputs) if name is None]

    def run(arguments: list[Any]) -> Any:
        """Run flat launches if all tensors are on one GPU and all sizes are fixed; else run node by node."""
        devices = {each.device for each in arguments if isinstance(each, torch.Tensor)}
        device = devices.pop() if len(devices) == 1 else None
        if device is None or device.type != "cuda" or not repeats:
            return slowly(arguments)
        if device not in known:
            from noyau.jobs.optimize.cuda.saved_kernels import flatten_later  # many modules, for a GPU alone

            known.setdefault(device, flatten_later(copy_graph(program), places, slowly))
        return known[device](arguments)

    takes, gives = pytree.treespec_loads(layout.takes), pytree.treespec_loads(layout.gives)

    def call(*args: Any, **kwargs: Any) -> Any:
        flat, form = pytree.tree_flatten((args, kwargs))
        if form != takes or len(flat) != len(layout.extents):
            raise InputError(f"it was saved for arguments of the form {takes}, and is given {form}")
        for at, (value, extents, expected) in enumerate(zip(flat, layout.extents, forms, strict=True)):
            _require(at, value, extents, expected)
        # Kernels read memory and do not see the lazy negation or conjugation of a view, so both are resolved.
        arguments = (each.resolve_neg().resolve_conj() if isinstance(each, torch.Tensor) else each for each in flat)
        with torch.no_grad():
            results = run([next(arguments) if name is None else tensors[name] for name in layout.inputs])
            for name, result in zip(layout.outputs, results, strict=True):
                if name is not None:
                    tensors[name].copy_(result)
        returned = [each for name, each in zip(layout.outputs, results, strict=True) if name is None]
        return pytree.tree_unflatten(returned, gives)

    return call


def _require(at: int, value: Any, extents: tuple[int | None, ...] | None, form: tuple[str, str] | None) -> None:
    """InputError if an argument does not have the shape and dtype that it was saved for, or is on another kind of
    device."""
    if extents is None:
        return
    shape = tuple(value.shape) if isinstance(value, torch.Tensor) else None
    fits = shape is not None and len(shape) == len(extents)
    if not fits or any(want not in (None, got) for want, got in zip(extents, shape or (), strict=True)):
        expected = ", ".join("any" if each is None else str(each) for each in extents)
        raise InputError(f"argument {at} has the shape {shape}, and the module was saved for [{expected}]")
    ends = zip(_dtype_and_place(value) or (), form or (), ("", "on "), (".to(torch.{})", '.to("{}")'), strict=False)
    for got, want, on, turn in ends:
        if got != want and (value.dim() or not on):  # a tensor of rank 0 may be on any device
            message = f"argument {at} is {on}{got}, and the module was saved for {on and 'one '}{on}{want}"
            raise InputError(f"{message}; give it {turn.format(want)}")
