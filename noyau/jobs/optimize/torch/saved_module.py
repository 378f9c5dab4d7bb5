"""Optimised modules as files: a zip of a graph as JSON, tensors as bytes, kernels as text and as built libraries.

Nothing in it is pickled. But kernels are code: libraries are opened and texts in Triton executed when a file is read,
and kernels run when the module is called. So load only what you would run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import secrets
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx

from noyau.codegen.language import generated_on
from noyau.dtypes import DType, from_numpy
from noyau.errors import BuildError, ModelError, NoyauError, OutputError
from noyau.frontends.torch.sites import TO_TORCH
from noyau.hosts.numpy.fast_calls import Argument
from noyau.hosts.torch.modules.rewrite import device_here, graph_from_json, graph_to_json
from noyau.jobs.optimize.cuda.saved_kernels import CallForm, reopen
from noyau.jobs.optimize.torch.candidates import KernelEnds, library_of, open_kernel
from noyau.jobs.optimize.torch.export import CallLayout, ExportedModule, runnable
from noyau.text import printable
from noyau.timing.conditions import this_machine
from noyau.toolchain.c import compiler as c_compiler
from noyau.version import __version__

FORMAT = 1
_MANIFEST = "noyau.json"
_BY_NAME = {str(dtype): dtype for dtype in TO_TORCH.values()}
_LARGEST_BYTES = 64 << 20  # of the manifest
_MOST_KERNELS = 10_000


@dataclass(frozen=True, slots=True)
class SavedKernel:
    """A kernel in places that give it the same numbers: its name, text and library, what it reads and makes. On a GPU
    it has no library, its numbers stand in the text, and `device` says how it is called."""

    name: str
    text: str
    library: Path | None
    ends: KernelEnds
    scalars: tuple[np.ndarray | None, ...]
    device: CallForm | None = None


def save(path: Path, exported: ExportedModule, program: fx.Graph, fused: Mapping[Any, SavedKernel]) -> None:
    """Write a module, whole or not at all: the graph without kernels and the one with them, `fused` having what each
    function in the latter is. OutputError where the file cannot be written, UnsupportedError where the graph has what
    the format does not."""
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
        "kernels": {name: _told(piece) for name, piece in kernels.items()},
        "tensors": {name: _form(tensor) for name, tensor in exported.tensors.items()},
    }
    fresh = path.parent / f".noyau-{secrets.token_hex(8)}.tmp"
    try:
        with zipfile.ZipFile(fresh, "x", zipfile.ZIP_STORED) as file:
            file.writestr(_MANIFEST, json.dumps(manifest))
            for name, piece in kernels.items():
                file.writestr(f"kernels/{name}.{'c' if piece.library else 'py'}", piece.text)
                if piece.library is not None:
                    file.writestr(f"kernels/{name}.so", piece.library.read_bytes())
            for number, tensor in enumerate(exported.tensors.values()):
                file.writestr(f"tensors/{number}", _bytes(tensor))
        fresh.replace(path)
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}; give a folder that exists, with room in it"
        raise OutputError(message) from error
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def _told(piece: SavedKernel) -> dict[str, Any]:
    if piece.library is None:
        assert piece.device is not None
        text = hashlib.sha256(piece.text.encode()).hexdigest()
        return {"name": piece.name, "language": "triton", "text": text, **asdict(piece.device)}
    return {
        "name": piece.name,
        "inputs": [[end.dtype.value, end.rank] for end in piece.ends.inputs],
        "results": piece.ends.results,
        "scalars": [None if each is None else [_dtype(each), each.tobytes().hex()] for each in piece.scalars],
        "text": hashlib.sha256(piece.text.encode()).hexdigest(),
        "library": hashlib.sha256(piece.library.read_bytes()).hexdigest(),
    }


def _dtype(number: np.ndarray) -> str:
    found = from_numpy(number.dtype)
    assert found is not None, number.dtype
    return found.value


def _form(tensor: torch.Tensor) -> dict[str, Any]:
    form = {"dtype": str(tensor.dtype), "shape": list(tensor.shape)}
    return form if tensor.device.type == "cpu" else {**form, "device": str(tensor.device)}


def _bytes(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().contiguous().cpu()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def load(path: Path) -> Callable[..., Any]:
    """Load what `save` wrote, ready to be called: nothing is timed, and nothing is built unless it was written
    elsewhere.

    On a lesser processor, or where a library does not load, kernels are built from their text; where they cannot be,
    the module runs on torch's kernels alone; one warning says so. ModelError for a file that is no saved module, is
    damaged, or is of another format."""
    try:
        with zipfile.ZipFile(path) as file:
            return _loaded(path, file)
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        if isinstance(error, NoyauError):
            raise
        raise ModelError(f"{path} is no module that noyau saved: {printable(str(error))}") from error


def _loaded(path: Path, file: zipfile.ZipFile) -> Callable[..., Any]:
    manifest = _manifest(path, file)
    try:
        layout = _layout(manifest["layout"])
        tensors = {
            name: _tensor(file.read(f"tensors/{number}"), form)
            for number, (name, form) in enumerate(manifest["tensors"].items())
        }
        told = _bounded(manifest["kernels"])
        gpu = generated_on(gpu=True)
        on_gpu = {name for name, each in told.items() if each.get("language") in gpu}
        texts = {name: file.read(f"kernels/{name}.{'py' if name in on_gpu else 'c'}").decode() for name in told}
        libraries = {name: file.read(f"kernels/{name}.so") for name in told if name not in on_gpu}
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise ModelError(f"{path} is damaged: {printable(repr(error))}") from error
    for name, each in told.items():
        for part, content in (("text", texts[name].encode()), ("library", libraries.get(name))):
            if content is not None and hashlib.sha256(content).hexdigest() != each.get(part):
                raise ModelError(f"{path} is damaged: the {part} of the kernel {printable(str(name))} was changed")
    here = manifest.get("level") == this_machine().level
    try:
        kernels = {
            name: reopen(each, texts[name])
            if name in on_gpu
            else _kernel(each, texts[name], libraries[name] if here else None)
            for name, each in told.items()
        }
        program = graph_from_json(manifest["fused"], kernels)
    except BuildError as error:
        warnings.warn(f"{path} runs on torch's kernels alone: {error}", RuntimeWarning, stacklevel=4)
        program = graph_from_json(manifest["plain"], {})
    else:
        if not here and libraries:
            told = f"{path} was written for {manifest.get('level')}; its kernels were built anew for this machine"
            warnings.warn(told, RuntimeWarning, stacklevel=4)
    try:
        return runnable(program, layout, tensors)
    except (ValueError, NotImplementedError, KeyError, TypeError) as error:
        told = "what it takes or gives is of a class that is not registered here: import the package that defines it"
        raise ModelError(f"{path}: {told} ({printable(str(error))})") from error


def _bounded(told: Any) -> Any:
    if len(told) > _MOST_KERNELS:
        raise ValueError(f"{len(told)} kernels are more than a module has")
    return told


def _manifest(path: Path, file: zipfile.ZipFile) -> dict[str, Any]:
    if file.getinfo(_MANIFEST).file_size > _LARGEST_BYTES:
        raise ModelError(f"{path} is damaged: its list of contents is too large")
    try:
        found = json.loads(file.read(_MANIFEST))
    except ValueError as error:
        raise ModelError(f"{path} is damaged: {printable(str(error))}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        version = printable(str(found.get("noyau"))) if isinstance(found, dict) else "another program"
        raise ModelError(f"{path} was written in another format, by noyau {version}; save it again with {__version__}")
    return found


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
    """A kernel of the file, by its library, or built from its text. BuildError where neither goes."""
    try:
        ends = KernelEnds(
            tuple(Argument(DType(dtype), int(rank)) for dtype, rank in fields["inputs"]), int(fields["results"])
        )
        scalars = [None if each is None else _scalar(*each) for each in fields["scalars"]]
        name = str(fields["name"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"a kernel of the file cannot be read: {printable(repr(error))}") from error
    if library is not None:
        with contextlib.suppress(BuildError):
            return open_kernel(name, _on_disk(library), ends, scalars)
    return open_kernel(name, library_of(text), ends, scalars)


def _scalar(dtype: str, content: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(content), DType(dtype).numpy).reshape(())


def _on_disk(library: bytes) -> Path:
    """A library as a file of this process, which the system's loader needs; it goes with the process."""
    folder = _folder()
    path = folder / f"{hashlib.sha256(library).hexdigest()}{c_compiler.LIBRARY_SUFFIX}"
    if not path.exists():
        path.write_bytes(library)
    return path


def _folder() -> Path:
    if not _FOLDERS:
        _FOLDERS.append(tempfile.TemporaryDirectory(prefix="noyau-"))
    return Path(_FOLDERS[0].name)


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
