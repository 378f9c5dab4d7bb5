"""Functions of extensions in C++ and CUDA C++ (torch's `load_inline`, TVM's foreign functions), called from outside
with every access watched."""

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias

import numpy as np

from noyau.dtypes import DType
from noyau.errors import FindingKind, SignatureError, UnsupportedError
from noyau.kernels.c.syntax import blank_comments, syntax
from noyau.kernels.user_kernel import LaunchConfig
from noyau.sanitizer.c.build import InstrumentedProgram, Source, build_program, rewrite, source_name
from noyau.sanitizer.c.reports import ReportContext, findings_of_runs
from noyau.sanitizer.c.run import ArrayArgument, RunResult, WorkSharing, part_watched, run
from noyau.sanitizer.records import WatchedRun
from noyau.verify.findings import Finding

Array = np.ndarray
_TYPES = {  # by torch's numbers
    DType.U8: 0, DType.I8: 1, DType.I16: 2, DType.I32: 3, DType.I64: 4,
    DType.F16: 5, DType.F32: 6, DType.F64: 7, DType.BOOL: 11, DType.BF16: 15,
}  # fmt: skip
_DTYPES = {number: dtype for dtype, number in _TYPES.items()}
_NONE, _BOOL, _INT, _FLOAT, _TEXT, _DTYPE, _TENSOR, _LIST, _FAULT = range(9)  # numbers in noyau_python.h
UNSET = 0xCB  # each byte of unwritten memory
# Headers of the C++ library that torch's own headers include, slow to compile: by the names that need them.
_STANDARD = {
    "array": "array", "function": "functional", "map": "map", "unordered_map": "unordered_map", "mutex": "mutex",
    "lock_guard": "mutex", "once_flag": "mutex", "cout": "iostream", "cerr": "iostream", "set": "set",
    "unordered_set": "unordered_set", "ostringstream": "sstream", "stringstream": "sstream", "thread": "thread",
}  # fmt: skip
_MACRO = re.compile(r"^(?![ \t]*#).*?\b((?:AT|TORCH|C10|TVM_FFI|PYBIND11)_[A-Z0-9_]+)[ \t]*\(", re.MULTILINE)
_DEFINES = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_ON_GPU = re.compile(r"__global__|<<<|\bcuda[A-Z]")
_RAISED = "raised"  # precedes the text of an exception


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor of a call, from byte `start` of the memory of this number on, strides in elements. A tensor that a
    function made and returned has the number -1 and its own cells; `unset` marks its unwritten elements."""

    memory: int
    start: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    on_gpu: bool = True
    cells: Array | None = None
    unset: Array | None = None


Value: TypeAlias = bool | int | float | str | DType | TensorView | Sequence["Value"] | None


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes in which tensors of a call lie. `unit`: of an element; `shape`: of the tensor that has all of it, for
    reports; `is_fresh`: nobody has written to it."""

    cells: Array
    unit: int
    shape: tuple[int, ...]
    on_gpu: bool = True
    is_fresh: bool = False


@dataclass(frozen=True, slots=True)
class ExtensionText:
    """A text of an extension, and the line of the file on which it begins."""

    file: str
    text: str
    line: int = 1

    @property
    def rewritten(self) -> str:
        """The text as it is built; reports name its lines."""
        return f"#line 1 {json.dumps(self.file)}\n{rewrite(self.padded, 'cuda', self.file)}\n"

    @property
    def padded(self) -> str:
        """The text at its own line numbers."""
        return "\n" * (self.line - 1) + self.text


@dataclass(frozen=True, slots=True)
class Extension:
    """The texts of an extension, grouped by compilation unit; `folder`: of their own headers."""

    units: tuple[tuple[ExtensionText, ...], ...]
    folder: Path | None = None
    flags: tuple[str, ...] = ()

    @property
    def texts(self) -> list[ExtensionText]:
        return [each for unit in self.units for each in unit]

    def names(self, word: str) -> bool:
        """Whether its texts contain a word, such as the name of a function."""
        return any(re.search(rf"\b{re.escape(word)}\b", each.text) for each in self.texts)

    def text_of(self, function: str) -> ExtensionText:
        """Return the text that defines a function, or the first one."""
        defines = re.compile(rf"\b{re.escape(function)}\s*\([^;]*?\)\s*\{{")
        return next((each for each in self.texts if defines.search(each.text)), self.texts[0])


@dataclass(frozen=True, slots=True, eq=False)
class CallBefore:
    """A call before another one in the same process, for the state that it leaves in static variables."""

    function: str
    args: Sequence[Value]
    memories: Sequence[Memory]
    named: Mapping[str, Value]

    @property
    def words(self) -> list[int]:
        pairs = [each for pair in self.named.items() for each in pair]
        return [*_words(self.function), *_words(list(self.args)), *_words(pairs)]

    def fits(self, memories: Sequence[Memory]) -> bool:
        """Whether its memories have the sizes of those of another call."""
        return [each.cells.nbytes for each in self.memories] == [each.cells.nbytes for each in memories]


@dataclass(frozen=True, slots=True)
class ExtensionCall:
    """The end of a call: its record, the returned value, the contents of the memories afterwards, or its exception
    (`TypeError: ...`). `is_late`: it exceeded its time; `part`: how much of its grids was watched, unless all."""

    watched: WatchedRun
    value: Value = None
    memories: tuple[Array, ...] | None = None
    fault: str = ""
    is_late: bool = False
    part: str = ""


@cache
def build_extension(extension: Extension) -> InstrumentedProgram:
    """Build the program of an extension, or take it from the cache. BuildError if it does not compile, UnsupportedError
    for what cannot be watched, or what the headers lack."""
    require_known(extension)
    folder, sources = extension.folder, []
    for unit in extension.units:
        names = dict.fromkeys(name for each in unit for name in re.findall(r"\bstd::(\w+)", each.text))
        wanted = dict.fromkeys(_STANDARD[name] for name in names if name in _STANDARD)
        file, text = unit[0].file, "".join(f"#include <{each}>\n" for each in wanted)
        text += "".join(each.rewritten for each in unit)
        own = folder and folder / Path(file).parent
        flags = (*extension.flags, *([f"-I{folder}"] if folder else []))
        sources.append(Source(text, "cuda", flags, own, file))
    return build_program(replace(sources[0], others=tuple(sources[1:])))


def require_known(extension: Extension) -> None:
    """Raise UnsupportedError, with the line, for a macro of torch or TVM that the headers here lack; the compiler would
    report something else first."""
    own = extension.folder.rglob("*") if extension.folder else ()
    texts = [*(each.text for each in extension.texts), *(each.read_text("utf-8") for each in own if each.is_file())]
    known = _macros() | {name for text in texts for name in _DEFINES.findall(text)}
    for each in extension.texts:
        clean = blank_comments(each.padded)
        for match in _MACRO.finditer(clean):
            if match[1] not in known:
                place = f"{each.file}: line {clean.count(chr(10), 0, match.start(1)) + 1}"
                raise UnsupportedError(f"{place} uses {match[1]}, which cannot be watched; check a kernel without it")


@cache
def _macros() -> set[str]:
    folder = Path(str(files("noyau.sanitizer.c").joinpath("include")))
    return {name for path in folder.rglob("*.h") for name in _DEFINES.findall(path.read_text("ascii"))}


def bindings(functions: Sequence[str]) -> str:
    """Return the text that names functions for Python."""
    definitions = " ".join(f"m.def({json.dumps(each)}, &{each});" for each in functions)
    return f"PYBIND11_MODULE(noyau, m) {{ {definitions} }}\n"


def keeps_state(extension: Extension) -> bool:
    """Whether its texts have variables that live on from call to call."""
    names = {source_name(each.name) for each in build_extension(extension).globals if not each.is_tls}
    return extension.names("thread_local") or any(extension.names(name) for name in names if name.isidentifier())


def call_extension(
    extension: Extension,
    function: str,
    args: Sequence[Value],
    memories: Sequence[Memory],
    named: Mapping[str, Value] | None = None,
    *,
    op: str = "",
    patience_s: float = 10.0,
    before: Sequence[CallBefore] = (),
) -> ExtensionCall:
    """Call a function on values and on tensors that lie in memories, for up to `patience_s` CPU seconds. `before`:
    calls that come first, in order.

    SignatureError for a value that no function takes; else as `build_extension` and `run`."""
    words = [len(memories), *(each.cells.nbytes for each in memories)]
    words += [len(before), *(word for each in before for word in each.words)]
    request = np.array([*words, *CallBefore(function, args, memories, named or {}).words], np.int64)
    names, has_gpu = _names(extension, function, args), any(_ON_GPU.search(each.text) for each in extension.texts)
    arrays = [ArrayArgument("the_call", request.shape, request.dtype, request)]
    for number, each in enumerate(memories):
        cells, name = each.cells.view(f"V{each.unit}"), names.get(number, f"argument_{number}")
        contents, on_gpu = None if each.is_fresh else cells, each.on_gpu and has_gpu
        arrays.append(ArrayArgument(name, cells.shape, cells.dtype, contents, on_gpu=on_gpu))
    for each in (memory for call in before for memory in call.memories):
        cells = np.full_like(each.cells, UNSET) if each.is_fresh else each.cells
        arrays.append(ArrayArgument("before", cells.shape, cells.dtype, cells))
    shapes = {each.name: memory.shape for each, memory in zip(arrays[1:], memories, strict=False)}
    own = extension.text_of(function)
    context = ReportContext(op or function, function, function, "cuda", own.file, own.padded, shapes, "")
    ran, watched = _watch(extension, arrays, context, patience_s)
    if any(each.kind is FindingKind.RACE for each in watched.findings):
        # A compiler for a GPU moves a load to the path that needs its value, or drops it.
        lazy = replace(extension, flags=(*extension.flags, "-ftree-sink"))
        raced = {each.id for each in _watch(lazy, arrays, context, patience_s)[1].findings}
        findings = (each if each.id in raced else _as_warning(each) for each in watched.findings)
        watched = replace(watched, findings=tuple(findings))
    return replace(_end(watched, ran, memories), part=part_watched(ran.grids))


def _watch(
    extension: Extension, arrays: Sequence[ArrayArgument], context: ReportContext, patience_s: float
) -> tuple[RunResult, WatchedRun]:
    program = build_extension(extension)
    ran = run(program, arrays, WorkSharing(1), LaunchConfig(), patience_s=patience_s)
    findings, allowed = findings_of_runs([ran], program.lines, context)
    accesses = sum(each.accesses for each in ran.grids) if ran.grids else ran.accesses
    return ran, WatchedRun(findings, accesses, allowed, (ran.concurrency,) if ran.concurrency else ())


def _as_warning(finding: Finding) -> Finding:
    """Return a race that disappears with loads moved to their uses as a warning; other findings are unchanged."""
    message = f"{finding.message}; nobody uses what is read there"
    return replace(finding, severity="warning", message=message) if finding.kind is FindingKind.RACE else finding


def _end(watched: WatchedRun, ran: RunResult, memories: Sequence[Memory]) -> ExtensionCall:
    is_late = any(each.kind is FindingKind.CRASH and each.words == "it does not end" for each in ran.faults)
    if ran.arrays is None:
        return ExtensionCall(watched, is_late=is_late)
    after = [each.view(np.uint8).reshape(-1) for each in ran.arrays[1 : len(memories) + 1]]
    value = _Answer(ran.result).value()
    fault = value.pop() if isinstance(value, list) and value[:1] == [_RAISED] else ""
    return ExtensionCall(watched, None if fault else value, tuple(after), str(fault))


def _names(extension: Extension, function: str, args: Sequence[Value]) -> dict[int, str]:
    """Return the names of parameters that are tensors, by the number of their memory."""
    tree = syntax(extension.text_of(function).text, "cuda")
    own = next((each.parameters.named_children for each in tree.functions if each.name == function), ())
    words = [re.findall(r"\w+", tree.source(each)) for each in own]
    pairs = [(arg, each[-1]) for arg, each in zip(args, words, strict=False) if each]
    return {arg.memory: name for arg, name in reversed(pairs) if isinstance(arg, TensorView)}


def _words(value: Value) -> list[int]:
    """Encode a value as words of 64 bits. SignatureError for a value that no function takes."""
    match value:
        case None:
            return [_NONE]
        case TensorView(memory, start, dtype, shape, strides, on_gpu):
            return [_TENSOR, memory, start, _type(dtype), int(on_gpu), len(shape), *shape, *strides]
        case DType():
            return [_DTYPE, _type(value)]
        case bool():
            return [_BOOL, int(value)]
        case int() if -(1 << 63) <= value < 1 << 63:
            return [_INT, value]
        case float():
            return [_FLOAT, *struct.unpack("<q", struct.pack("<d", value))]
        case str():
            letters = value.encode()
            return [_TEXT, len(letters), *letters]
        case list() | tuple():
            return [_LIST, len(value), *(word for each in value for word in _words(each))]
        case _:
            kind = type(value).__name__
            raise SignatureError(f"a function of C++ takes no {kind} here; give tensors, numbers, texts, lists of them")


def _type(dtype: DType) -> int:
    if dtype not in _TYPES:
        raise SignatureError(f"no tensor of {dtype} is handed to C++ here; there are {', '.join(map(str, _TYPES))}")
    return _TYPES[dtype]


@dataclass(slots=True)
class _Answer:
    """The words of a result, decoded in order."""

    content: bytes
    at: int = 0

    def words(self, count: int) -> list[int]:
        self.at += 8 * count
        return list(struct.unpack_from(f"<{count}q", self.content, self.at - 8 * count))

    def value(self) -> Value:
        """Decode the next value."""
        (kind,) = self.words(1)
        match kind:
            case 1:
                return bool(self.words(1)[0])
            case 2:
                return self.words(1)[0]
            case 3:
                return float(struct.unpack("<d", struct.pack("<q", *self.words(1)))[0])
            case 4 | 8:
                text = bytes(self.words(*self.words(1))).decode("utf-8", "replace")
                return text if kind == _TEXT else [_RAISED, text]
            case 5:
                return _DTYPES[self.words(1)[0]]
            case 6:
                return self.tensor()
            case 7:
                return [self.value() for _ in range(*self.words(1))]
            case _:
                return None

    def tensor(self) -> TensorView:
        memory, start, code, on_gpu, rank = self.words(5)
        dtype, shape, strides = _DTYPES[code], tuple(self.words(rank)), tuple(self.words(rank))
        cells = unset = None
        if memory < 0:
            (size,) = self.words(1)
            cells = np.frombuffer(self.content, np.uint8, size, self.at)
            unset = np.frombuffer(self.content, bool, size // dtype.bytes, self.at + size)
            self.at, start = self.at + size + len(unset), 0
        return TensorView(memory, start, dtype, shape, strides, bool(on_gpu), cells, unset)
