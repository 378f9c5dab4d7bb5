"""Hooks for a running script that build torch extensions in C++ and CUDA C++ with instrumentation and watch each call
of their functions, on copies of the storages of its tensors. No GPU is needed."""

from __future__ import annotations

import ctypes
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch.utils import cpp_extension

from noyau.codegen.language import BY_SUFFIX
from noyau.errors import BuildError, NoyauError, RaisedError, UnansweredError, UnsupportedError
from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.torch.tensors import from_torch
from noyau.kernels.attach import line_of
from noyau.sanitizer.c import extension as c_extension
from noyau.sanitizer.c.extension import UNSET, CallBefore, Extension, ExtensionText, Memory, TensorView, Value
from noyau.sanitizer.scripts.fakes import patch
from noyau.sanitizer.scripts.record import ScriptSession, describe_shapes
from noyau.sanitizer.scripts.triton_host import is_marked, mark_tensors

LANGUAGE = "cuda"
_HEADERS = frozenset({".h", ".hpp", ".cuh", ".inl", ".inc"})
_PRELUDE = "#include <torch/extension.h>\n#include <cuda_runtime.h>"
_FLAG = re.compile(r"-(?:D|U|std=)")  # flags that change the meaning of a text
_CALLS = 8  # earlier calls repeated before a call, for the state that they leave in static variables
_ADDRESS = 1 << 40  # lowest address of mapped memory
_PROGRAM = 1 << 22  # where a Python without position independence begins, as Debian's; its heap follows
_RAISED = {"TypeError": TypeError, "ValueError": ValueError, "AttributeError": AttributeError}


def is_compiled(file: str) -> bool:
    """Whether a file is a C++ or CUDA source."""
    return Path(file).suffix in BY_SUFFIX


@contextmanager
def stood_in(extensions: Extensions | None) -> Iterator[None]:
    """Let torch build watched extensions; for a reference it builds none."""
    with ExitStack() as undone:
        for name in ("load", "load_inline"):
            patch(undone, cpp_extension, name, getattr(extensions, name, lambda *wishes, **named: None))
        yield


class Extensions:
    """The extensions of a script in a folder. `time_s`: CPU seconds per call; `scratch`: a folder for generated texts;
    `poison`: the byte that fills unwritten memory."""

    def __init__(self, session: ScriptSession, folder: Path, time_s: float, scratch: Path | None = None) -> None:
        self.session, self.folder, self.scratch, self.poison = session, folder, scratch or folder, UNSET
        # The last calls of each extension that keeps state between calls.
        self.before: dict[Extension, list[CallBefore]] = defaultdict(list)
        self.time_s = 0.9 * time_s  # below the limit of the calling process, so that lateness is reported from here

    def load(self, name: str, sources: Any, *wishes: Any, **named: Any) -> BuiltExtension:
        """Stand in for torch.utils.cpp_extension.load."""
        paths = [Path(each) for each in ([sources] if isinstance(sources, str | os.PathLike) else sources)]
        return self.of_files(name, [os.path.relpath(self.folder / each, self.folder) for each in paths], _flags(named))

    def of_files(self, name: str, files: Sequence[str], flags: Sequence[str] = ()) -> BuiltExtension:
        """Build an extension from the folder's files. The compiler reads their headers from rewritten copies."""
        copies = self.scratch / "built"
        for file in files:
            (copies / file).parent.mkdir(parents=True, exist_ok=True)  # a path with `..` needs the folder
        for path in [each for each in self.folder.rglob("*") if each.suffix in _HEADERS and each.is_file()]:
            file = str(path.relative_to(self.folder))
            (copies / file).parent.mkdir(parents=True, exist_ok=True)
            (copies / file).write_text(ExtensionText(file, path.read_text("utf-8")).rewritten, "utf-8")
        units = tuple((ExtensionText(file, (self.folder / file).read_text("utf-8")),) for file in files)
        return self.build(name, Extension(units, copies, tuple(filter(_FLAG.match, flags))))

    def load_inline(
        self,
        name: str,
        cpp_sources: Any,
        cuda_sources: Any = None,
        sycl_sources: Any = None,
        functions: Any = None,
        *wishes: Any,
        **named: Any,
    ) -> BuiltExtension:
        """Stand in for torch.utils.cpp_extension.load_inline."""
        parts = [[part] if isinstance(part, str) else part or [] for part in (cuda_sources, cpp_sources)]
        texts = [each for part in parts for each in part if each.strip()]
        names = [functions] if isinstance(functions, str) else list(functions or ())
        unit = [ExtensionText("load_inline", _PRELUDE), *(self.place(name, at, text) for at, text in enumerate(texts))]
        unit += [ExtensionText("load_inline", c_extension.bindings(names))] if names else []
        return self.build(name, Extension((tuple(unit),), None, _flags(named)))

    def place(self, name: str, number: int, text: str) -> ExtensionText:
        """Locate a text in the Python file that contains it; a text in no file is written to a file of its own."""
        for path in sorted(self.folder.glob("*.py")):
            if line := line_of(text, path.read_text("utf-8")):
                return ExtensionText(os.path.relpath(path), text, line)
        own = self.scratch / "_".join([*re.findall(r"\w+", name), f"{number}.cu"])
        own.write_text(text, "utf-8")
        return ExtensionText(os.path.relpath(own), text)

    def build(self, name: str, extension: Extension) -> BuiltExtension:
        """Build an extension. BuildError if it does not compile; UnsupportedError if it cannot be watched."""
        try:
            c_extension.build_extension(extension)
        except NoyauError as error:
            if isinstance(error, BuildError):
                raise
            self.session.add(name, LANGUAGE, extension.texts[-1].file, "", None, str(error))
            raise UnsupportedError(str(error)) from None
        return BuiltExtension(self, extension)

    def call(self, extension: Extension, function: str, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Call a function and return its result as Python sees it."""
        place = extension.text_of(function).file
        shapes = describe_shapes([f"argument {number}" for number in range(len(args))], args)
        add = partial(self.session.add, function, LANGUAGE, place, shapes)
        with torch._C.DisableTorchFunction():
            tensors = _Tensors(self.poison, self.session, (function, place, LANGUAGE))
            try:
                values = [tensors.value(each) for each in args]
                by_name = {name: tensors.value(each) for name, each in named.items()}
                memories = list(tensors.memories())
                keeps, began_s = c_extension.keeps_state(extension), monotonic()
                before = [each for each in self.before[extension] if each.fits(memories)]
                contents = [replace(each, cells=each.cells.copy()) for each in memories] if keeps else []
                end = c_extension.call_extension(
                    extension, function, values, memories, by_name,
                    op=self.session.script, patience_s=self.time_s, before=before,
                )  # fmt: skip
                if keeps:  # keep as many calls as can be repeated within a quarter of the limit
                    many = self.time_s / 4 // ((monotonic() - began_s) / (len(before) + 1))
                    kept = [*self.before[extension], CallBefore(function, values, contents, by_name)]
                    self.before[extension] = kept[-int(min(max(many, 1), _CALLS)) :]
            except NoyauError as error:
                add(None, str(error))
                raise UnsupportedError(str(error)) from None
            if end.is_late:
                raise UnansweredError(f"{function} gave no answer within {self.time_s:g} s")
            add(end.watched, f"it makes more accesses than are watched: {end.part} were" if end.part else "")
            if end.memories is None:
                raise RaisedError(f"{function} crashed")
            tensors.write_back(memories, end.memories)
            if end.fault:
                kind, _, words = end.fault.partition(": ")
                raise _RAISED.get(kind, RuntimeError)(words)
            return tensors.result(end.value)


def _flags(named: Mapping[str, Any]) -> tuple[str, ...]:
    every = [*(named.get("extra_cflags") or ()), *(named.get("extra_cuda_cflags") or ())]
    return tuple(each for each in every if _FLAG.match(each))


class BuiltExtension:
    """A module with the functions of an extension."""

    def __init__(self, extensions: Extensions, extension: Extension) -> None:
        self._extensions, self._extension = extensions, extension

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or not self._extension.names(name):
            raise AttributeError(f"the extension has no function {name}")
        return lambda *args, **named: self._extensions.call(self._extension, name, args, named)


def _is_address(number: int) -> bool:
    """Whether a number may be the address of a tensor: in the range of mapped memory, or within the heap."""
    if not _PROGRAM <= number < _ADDRESS:
        return number >= _ADDRESS
    with suppress(OSError):
        maps = Path("/proc/self/maps").read_text("utf-8", "replace")
        heap = re.findall(r"^(\w+)-(\w+) .*\[heap\]$", maps, re.MULTILINE)  # one per kind of page
        return any(int(first, 16) <= number < int(end, 16) for first, end in heap)
    return False


class _Tensors:
    """The tensors of a call and their storages."""

    def __init__(self, poison: int, session: ScriptSession, kernel: tuple[str, str, str]) -> None:
        self.poison, self.kernel = poison, kernel
        self.empties = session.empties if poison == UNSET else None  # otherwise a judge reads the cells
        self.storages: dict[int, tuple[int, list[torch.Tensor]]] = {}  # by address: its number, its tensors
        self.views: list[tuple[TensorView, torch.Tensor]] = []

    def value(self, each: Any) -> Value:
        """Convert an argument for the extension."""
        match each:
            case torch.Tensor():
                return self.view(each)
            case torch.dtype():
                return from_torch(each)
            case torch.device():
                return str(each)
            case list() | tuple():
                return [self.value(part) for part in each]
            case int() if _is_address(each):
                raise UnsupportedError("a number that is an address is not followed; pass the tensor")
            case _:
                return each  # type: ignore[no-any-return]

    def view(self, tensor: torch.Tensor) -> TensorView:
        dtype = from_torch(tensor.dtype)
        if dtype is None or tensor.layout is not torch.strided or tensor.device.type != "cpu":
            raise UnsupportedError(f"a tensor of {tensor.dtype}, {tensor.layout} is not handed to C++ here")
        storage = tensor.untyped_storage()
        number, tensors = self.storages.setdefault(storage.data_ptr(), (len(self.storages), []))
        tensors.append(tensor)
        start = tensor.storage_offset() * tensor.element_size()
        result = TensorView(number, start, dtype, tuple(tensor.shape), tensor.stride(), is_marked(tensor))
        self.views.append((result, tensor))
        return result

    def memories(self) -> Iterator[Memory]:
        """Yield the storages in order. A fresh storage holds no values; a float storage full of poison counts too."""
        for _, tensors in self.storages.values():
            largest = max(tensors, key=torch.Tensor.numel)
            cells, unit = _cells(largest), largest.element_size()
            unit = unit if cells.size % unit == 0 else 1
            is_fresh = largest.dtype.is_floating_point and cells.size > 0 and bool((cells == self.poison).all())
            if self.empties and unit >= 4 and (empty := self.empties.of(largest)):  # small values may be the poison
                is_fresh = not empty.is_set.any()
            is_whole = largest.numel() * unit == cells.size and largest.is_contiguous()
            shape = tuple(largest.shape) if is_whole else (cells.size // unit,)
            yield Memory(cells, unit, shape, is_marked(largest), is_fresh)

    def write_back(self, memories: Sequence[Memory], contents: Sequence[np.ndarray]) -> None:
        """Copy the memories' contents into the storages and increment the version counters of changed tensors."""
        for before, (_, tensors), after in zip(memories, self.storages.values(), contents, strict=True):
            rows, cells = after.reshape(-1, before.unit), _cells(tensors[0])
            unset = (rows == UNSET).all(1) & before.is_fresh
            rows[unset] = self.poison
            if not np.array_equal(cells, after):
                cells[...] = after
                for each in tensors:
                    if not each.is_inference():
                        torch.autograd.graph.increment_version(each)
            self.note_unset(tensors[0], unset, before.unit)

    def note_unset(self, tensor: torch.Tensor, unset: np.ndarray, unit: int) -> None:
        """Register a storage's unwritten elements, so that a read by the host is reported."""
        if self.empties and unset.any():
            self.empties.add(tensor, ~unset.repeat(unit), self.kernel)

    def result(self, value: Value) -> Any:
        """Convert a value of the extension for Python."""
        match value:
            case TensorView():
                return self.tensor(value)
            case list() | tuple():
                return [self.result(each) for each in value]
            case _:
                return value

    def tensor(self, view: TensorView) -> torch.Tensor:
        """Return the tensor that was passed in, another view of its storage, or a tensor with a new storage."""
        dtype = TO_TORCH[view.dtype]
        if view.cells is not None:
            if view.cells.size and view.unset is not None:
                rows = view.cells.reshape(len(view.unset), -1).copy()
                rows[view.unset] = self.poison
                result = torch.frombuffer(rows.data, dtype=dtype).as_strided(view.shape, view.strides)
                self.note_unset(result, view.unset, view.dtype.bytes)
            else:
                result = torch.empty(view.shape, dtype=dtype)
        else:
            same = (tensor for known, tensor in self.views if known == view)
            if (tensor := next(same, None)) is not None:
                return tensor
            own = next(tensor for known, tensor in self.views if known.memory == view.memory)
            place = view.start // view.dtype.bytes, view.shape, view.strides
            result = torch.empty(0, dtype=dtype).set_(own.untyped_storage(), *place)
        return mark_tensors(result) if view.on_gpu else result


def _cells(tensor: torch.Tensor) -> np.ndarray:
    """Return the bytes of a tensor's storage, without a copy."""
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        return np.empty(0, np.uint8)
    return np.frombuffer((ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr()), np.uint8)
