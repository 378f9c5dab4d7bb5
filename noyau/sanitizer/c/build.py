"""Building of a program from the user's text and the runtime that watches it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from noyau.codegen.language import LANGUAGES
from noyau.errors import BuildError, UnsupportedError
from noyau.kernels.c.syntax import blank_comments, plain_name, syntax
from noyau.sanitizer.c.debug_info import LineTable, ProgramObject, lines_of, objects_of
from noyau.sanitizer.c.pragmas import simd_calls, variable_calls
from noyau.text import package_text
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.c.compiler import header_flags

OWN = "noyau_own_text.c"  # the name of the user's text where it is built: not a file that it may include
_RUNTIME = (
    "cells lanes memory fibers clocks entries teams loops tasks target openmp threads cuda copies device streams grids"
    " repeats main"
).split()
_WRAPPED = (
    "main malloc calloc realloc free aligned_alloc posix_memalign memcpy memmove memset printf puts putchar clock"
).split()
_WATCHED = ("-g -fsanitize=thread -fno-builtin-memcpy -fno-builtin-memset -fno-tree-loop-im -fno-tree-sink").split()
_LEVEL = re.compile(r"-O[01g]$")  # levels at which a text may be watched: others leave too much out
_LEFT_OUT = re.compile(r"-(O.*|flto.*|fsanitize.*|g.*|ffast-math|Ofast|l.*|L.*)$")
_ERROR = re.compile(r"([^\s:|]+):(\d+):\d+: (?:fatal )?error: ([^|\n]*?)(?: \||; the text is in|$)")
_UNDECLARED = re.compile(
    r"['\u2018]((?:cuda|cu[A-Z]|CU|nv[A-Z]|__|atomic|tex[1-3C]|surf[1-3C])\w*)['\u2019] "
    r"(?:was not declared|has not been declared|does not name|is not a member)"
)
_LIBRARIES = r"cuda\w*|cub|thrust|cooperative_groups|cg|nvcuda|noyau_\w+|torch|at|c10|caffe2|pybind11|py|tvm"
_OF_CUDA = re.compile(rf"\b(?:{_LIBRARIES})(?:::|['\u2019])|\bnoyau_\w+|\bTORCH_|\bTVM_|static assertion failed")
_MISSING = re.compile(r"^(\S+): No such file or directory")
_UNKNOWN = re.compile(r"undefined reference to `([\w:]+)")


@dataclass(frozen=True, slots=True)
class InstrumentedProgram:
    """A runnable program, and its line table; `globals`: the objects of the user's text."""

    path: Path
    lines: LineTable
    globals: tuple[ProgramObject, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A text to be watched. `folder`: of its own headers, if any; `called`: its name in messages; `others`: texts of
    the same program, each built by itself; `level`: of optimisation, unless the flags say another one. From -O1 on,
    unneeded reads and writes disappear."""

    text: str
    language: str
    flags: tuple[str, ...] = ()
    folder: Path | None = None
    called: str = "kernel.c"
    others: tuple[Source, ...] = ()
    level: str = "-O1"


def build_program(source: Source) -> InstrumentedProgram:
    """Build the program of a text, or take it from the cache. BuildError as the compiler says, UnsupportedError if it
    calls what cannot be watched, or without gcc."""
    try:
        return _link(source, _options(source), tuple(_object(each, _options(each)) for each in source.others))
    except BuildError as error:
        raise BuildError(str(error).replace(OWN, source.called)) from None


def _options(source: Source) -> c_compiler.CompilerOptions:
    flags = (*_flags(source), *header_flags(source.text, source.flags, source.folder))
    return c_compiler.CompilerOptions(compiler=_compiler(), extra=flags, called=OWN)


def _object(source: Source, options: c_compiler.CompilerOptions) -> Path:
    try:
        return c_compiler.compile_object(source.text, options)
    except BuildError as error:
        raise _unsupported_name(error, source.language) from None


@cache
def runtime(*, in_cpp: bool) -> Path:
    """Build the object of the runtime, one for texts in C and one for programs `in_cpp`, or take it from the cache.
    BuildError and UnsupportedError as of `build_program`."""
    flags: tuple[str, ...] = ("-O1", "-fexceptions")  # builds in a third of the time; its callees may throw
    flags += ("-DNOYAU_IN_CPP",) if in_cpp else ()
    names = "runtime.h", *(f"{name}.c" for name in _RUNTIME)
    text = "\n".join(package_text(f"sanitizer/c/{name}") for name in names)
    return c_compiler.compile_object(text, c_compiler.CompilerOptions(compiler=_compiler(), extra=flags))


@cache
def _link(source: Source, options: c_compiler.CompilerOptions, others: tuple[Path, ...]) -> InstrumentedProgram:
    own = _object(source, options)
    in_cpp = any(LANGUAGES[each.language].is_cpp for each in (source, *source.others)) or "-lstdc++" in source.flags
    standard = ["-lstdc++"] if in_cpp else []  # most of the time to link
    libraries = [flag for flag in source.flags if flag.startswith(("-l", "-L"))]
    words = [*standard, "-pthread", *(f"-Wl,--wrap={name}" for name in _WRAPPED), *libraries]
    objects = [own, *others, runtime(in_cpp=in_cpp)]
    try:
        path = c_compiler.program(objects, words, c_compiler.CompilerOptions(compiler=options.compiler))
    except BuildError as error:
        raise _undefined_name(error) from None
    return InstrumentedProgram(path, lines_of(path, OWN), _globals(path, (own, *others)))


def _compiler() -> str:
    """Return gcc, whose calls the runtime takes over from libgomp and from gcc's own sanitizer."""
    for name in ("gcc", "cc"):
        try:
            if "clang" not in c_compiler.find_compiler(name).version.lower():
                return name
        except BuildError:
            continue
    reason = "memory of C and C++ is watched in what gcc builds, and there is no gcc"
    raise UnsupportedError(f"{reason}; install gcc and g++")


def _flags(source: Source) -> tuple[str, ...]:
    own = tuple(flag for flag in source.flags if not _LEFT_OUT.match(flag))
    level = next((flag for flag in reversed(source.flags) if _LEVEL.match(flag)), source.level)
    standard = () if LANGUAGES[source.language].is_cpp else ("-std=gnu17",)  # gcc's default
    watched = (each for each in _WATCHED if each.replace("-fno-", "-f") not in own)
    flags = (*LANGUAGES[source.language].flags, *standard, *own, level, *watched, "-fopenmp", "-U__SANITIZE_THREAD__")
    if LANGUAGES[source.language].on_gpu:
        folder = Path(str(files("noyau.sanitizer.c").joinpath("include")))
        # A digest of the stand-ins for CUDA, so that builds with others are not taken.
        contents = b"\0".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
        digest = hashlib.sha256(contents).hexdigest()[:16]
        flags += ("--param=tsan-distinguish-volatile=1", "-isystem", str(folder), "-include", "noyau_cuda.h")
        # Without -fno-tree-sra a copy of a struct reads members that nobody needs, nor has set.
        flags += (f"-DNOYAU_SHIM_{digest}", "-fsanitize=alignment", "-fno-tree-sra")
    return flags


def _unsupported_name(error: BuildError, language: str) -> BuildError | UnsupportedError:
    """Return an error for a GPU text that does not compile here, but may be right for its own compiler."""
    fault = _ERROR.search(str(error)) if LANGUAGES[language].on_gpu else None
    if fault is None:
        return error
    file, line, words = fault.groups()
    where = f"line {line}" if file == OWN else f"line {line} of {Path(file).name}"
    name, missing = _UNDECLARED.search(words), _MISSING.match(words)
    if missing:
        reason = f"{where} includes {missing[1]}, which is not found"
        return UnsupportedError(f"{reason}; name its folder: --flags=-I..." if file == OWN else reason)
    if name:
        return UnsupportedError(f"{where} uses {name[1]}, which cannot be watched; check a kernel without it")
    if _OF_CUDA.search(words) or "/sanitizer/c/include/" in file:
        return UnsupportedError(f"{where} uses parts of CUDA that cannot be watched: {words}")
    return error


def _undefined_name(error: BuildError) -> BuildError | UnsupportedError:
    """Return an error for undefined names, which are mostly of OpenMP or CUDA and have no stand-in."""
    names = dict.fromkeys(_UNKNOWN.findall(str(error)))
    if not names:
        return error
    place = re.search(rf"{re.escape(OWN)}:(\d+)", str(error))
    where = f"line {place[1]} calls" if place else "it calls"
    return UnsupportedError(f"{where} {', '.join(names)}, which cannot be watched; check a kernel without it")


def _globals(path: Path, parts: Sequence[Path]) -> tuple[ProgramObject, ...]:
    """Return the objects of the user's texts within the program."""
    whole, objects, groups = objects_of(path), dict[ProgramObject, None](), dict[int, set[tuple[str, int]]]()
    for each in (each for each in whole if each.is_local):
        groups.setdefault(each.group, set()).add((each.name, each.size))
    for part in map(objects_of, parts):
        local = {(each.name, each.size) for each in part if each.is_local}
        shared = {each.name for each in part if not each.is_local}
        # Two files may have objects of the same names: each takes the group that it has most in common with.
        group = max(groups, key=lambda number: len(groups[number] & local), default=-1)
        group = group if local & groups.get(group, set()) else -1
        groups.pop(group, None)
        objects |= {each: None for each in whole if (each.group == group if each.is_local else each.name in shared)}
    return tuple(objects)


def source_name(symbol: str) -> str:
    """Return the name of an object in the source: of `_ZZ1fPfE4tile` tile, of `_ZN1A7counterE` A::counter."""
    nested = re.match(r"_ZNK?(?=\d)", symbol)
    names, at = list[str](), nested.end() if nested else len(symbol)
    while length := re.compile(r"\d+").match(symbol, at):
        at = length.end() + int(length[0])
        names.append(symbol[length.end() : at])
    if names and symbol[at : at + 1] == "E":
        return "::".join(name for name in names if not name.startswith("_GLOBAL__N"))
    bare = re.sub(r"(_\d+|\.\d+)+$", "", symbol) if symbol.startswith("_Z") else symbol.partition(".")[0]
    for match in re.finditer(r"(?=(?<!\d)(\d+)([A-Za-z_]\w*)$)", bare):
        if int(match[1]) == len(match[2]):
            return match[2]
    return bare


_FOR = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+omp[ \t]+(?:parallel[ \t]+)?for\b(?:\\\n|[^\n])*", re.MULTILINE)
UNSEEN = '__attribute__((no_sanitize("thread")))'

# Parts of CUDA without a stand-in, with their names in messages.
_REFUSED = {
    r"\basm\b\s*(?:volatile)?\s*\(": "PTX",
    r"\btex[123]D\w*\s*[<(]|\bcudaTextureObject_t\b|\btexture\s*<": "textures",
    r"\bcurand[A-Z]\w*\s*\(": "cuRAND's functions of the host",
    r"\bcub::(?!(?:Block|Warp)(?:Reduce|Scan)\b|Sum\b|M(?:ax|in)\b|BLOCK_)": "the rest of cub",
}
# Parts of a text for GPUs only: where it is watched, NOYAU_WATCHED is defined, and other text takes their place.
_FOR_GPUS = re.compile(
    r"^#if(?:ndef NOYAU_WATCHED| !defined\(NOYAU_WATCHED\)).*?(?=^#else|^#endif)", re.MULTILINE | re.DOTALL
)
_ALIGNED = re.compile(r"\b(__shared__)\s+(alignas\s*\((?:[^()]|\([^()]*\))*\))")
_NOT_INLINE = re.compile(r"(?<![(\w])__noinline__\b")
_OWN_SHAPES = {
    name: re.compile(rf"\b(?:dim3|auto|int|unsigned)\b(?:[^;{{}}()]|\([^;{{}}]*\))*?\b{name}\b\s*[({{=;,)]")
    for name in ("gridDim", "blockDim")
}
_OWN_HEADER = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"[^\n]*', re.MULTILINE)
_THRUST = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<thrust/[^>\n]*>", re.MULTILINE)
_CHANGED = re.compile(r"noyau_(?:grid|kernel)\(|noyau_dynamic_|<noyau_thrust")
_MEMBER = re.compile(r"(\.|->)(gridDim|blockDim)\b")
_NAME = r"&?\s*((?:\w+::)*\w+(?:\s*<[^<>();]*>)?)"
_KERNEL_ADDRESS = re.compile(
    rf"\(\s*(?:const\s+)?void\s*\*\s*\)\s*{_NAME}(?!\s*[\w(:<])"
    rf"|reinterpret_cast\s*<\s*(?:const\s+)?void\s*\*\s*>\s*\(\s*{_NAME}\s*\)"
)


def rewrite(text: str, language: str, kernel: str, folders: Sequence[Path] = (), file: str = OWN) -> str:
    """Rewrite a text for the build. `kernel`: its name in errors; `folders`: of headers; `file`: the name of its lines.
    UnsupportedError, with the line, for what has no stand-in."""
    if not LANGUAGES[language].on_gpu:
        return with_own_calls(text, is_cpp=LANGUAGES[language].is_cpp)
    return _with_headers(_with_calls(text, kernel), file, folders, ())


def _with_calls(text: str, kernel: str) -> str:
    """Rewrite CUDA C++ as C++: launches, dynamic memory and addresses of kernels become calls."""
    require_supported(text, kernel)
    text = _MEMBER.sub(r"\1of_\2", with_own_shapes(text))  # CUDA's own are macros here
    text = _ALIGNED.sub(r"\2 \1", text)  # C++ wants attributes first
    text = _NOT_INLINE.sub("__attribute__((__noinline__))", text)  # not a macro: headers of C++ have it as an attribute
    text = _THRUST.sub("#include <noyau_thrust.h>", text)
    return with_kernel_addresses(with_launch_calls(with_dynamic_pointers(text), kernel))


def _with_headers(text: str, file: str, folders: Sequence[Path], above: Sequence[Path]) -> str:
    """Insert the author's headers that `_with_calls` changes. `above`: the headers that contain this text."""

    def stated(include: re.Match[str]) -> str:
        path = next((each.resolve() for each in (folder / include[1] for folder in folders) if each.is_file()), None)
        if path is None or path in above:
            return include[0]
        name, beside, stack = json.dumps(str(path), ensure_ascii=False), [path.parent, *folders], (*above, path)
        header = _with_calls(path.read_text("utf-8", "replace"), path.name)
        own = _with_headers(header, str(path), beside, stack)
        if not _CHANGED.search(own):
            return f"#include {name}"
        once = f"NOYAU_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        after = f"#line {text.count(chr(10), 0, include.end()) + 2} {json.dumps(file, ensure_ascii=False)}"
        return f"#ifndef {once}\n#define {once}\n#line 1 {name}\n{own}\n#endif\n{after}"

    return _OWN_HEADER.sub(stated, text)


def header_folders(folder: Path | None, flags: Sequence[str]) -> list[Path]:
    """Return the folders that `#include "..."` searches: that of the text, and those of the flags."""
    named = [Path(flag[2:]) for flag in flags if flag.startswith("-I")]
    return named if folder is None else [folder, *named]


def with_own_shapes(text: str) -> str:
    """Rename variables gridDim and blockDim in the host functions that declare them."""
    spans = []
    of_host = [each for each in syntax(text, "cuda").functions if not each.marks & {"__global__", "__device__"}]
    for function in of_host:
        start, end = function.parameters.start_byte, function.body.end_byte if function.body else len(text)
        own = text[start:end]
        names = "|".join(name for name, declares in _OWN_SHAPES.items() if declares.search(own))
        spans += [(start, end, re.sub(rf"\b({names})\b", r"of_\1", own))] if names else []
    return _splice(text, spans)


def with_kernel_addresses(text: str) -> str:
    """Rewrite `(void *)kernel` as a call that keeps the types of its parameters, for launches by that address."""
    names = {each.name for each in syntax(text, "cuda").functions if "__global__" in each.marks}
    casts = _KERNEL_ADDRESS.finditer(blank_comments(text)) if names else ()
    named = [(each, each[1] or each[2]) for each in casts]
    spans = [(each.start(), each.end(), f"noyau_kernel({name})") for each, name in named if plain_name(name) in names]
    return _splice(text, spans)


def require_supported(text: str, kernel: str) -> None:
    """Raise UnsupportedError for a construct of CUDA without a stand-in."""
    clean = _FOR_GPUS.sub(lambda part: "\n" * part[0].count("\n"), blank_comments(text))
    for pattern, what in _REFUSED.items():
        match = re.search(pattern, clean)
        if match:
            line = clean.count("\n", 0, match.start()) + 1
            place = f"{kernel}: line {line} uses {match[0].strip(' (:<')}"
            raise UnsupportedError(f"{place}: {what} cannot be watched without a GPU; check a kernel without it")


def with_dynamic_pointers(text: str) -> str:
    """Rewrite `extern __shared__ float s[];` as a pointer, outside of functions as a reference to each launch's."""
    spans, arrays = [], syntax(text, "cuda").dynamic_arrays
    called = arrays[0].name if len({each.name for each in arrays}) == 1 else "dynamic shared memory"  # in findings
    for each in arrays:
        known, indirect = ("", "") if each.is_local else ("&", "const *")
        name, cast = f"*const {known}{each.name}", f"*{indirect}"
        name, cast = (f"({name})", f"({cast})") if each.row else (name, cast)
        value = f'noyau_dynamic_{"shared" if each.is_local else "place"}("{called}")'
        start = "" if each.is_local else "static "
        pointer = f"{start}{each.type} {name}{each.row} = {'*' * bool(known)}({each.type} {cast}{each.row}){value}"
        spans.append((each.start, each.end, pointer))
    return _splice(text, spans)


def with_launch_calls(text: str, kernel: str) -> str:
    """Rewrite `f<<<1, 64>>>(x, n)` as a call of noyau_grid. UnsupportedError, with the line, if it is not read."""
    tree = syntax(text, "cuda")
    if len(tree.launches) < len(tree.launch_places):
        read = {each.place for each in tree.launches}
        place = next(place for place in tree.launch_places if place not in read)
        reason = f"{kernel}: the launch on line {text.count(chr(10), 0, place) + 1} is not read"
        raise UnsupportedError(f"{reason}; write kernel<<<grid, block>>>(...)")
    spans = []
    for launch in tree.launches:
        name, comma = tree.source(launch.callee), ", " if launch.arguments.named_child_count else ""
        call = f"[&](auto... noyau_given) {UNSEEN} {{ {name}(noyau_given...); }}{comma}"
        end = launch.arguments.start_byte + 1
        spans.append((launch.callee.start_byte, end, f"noyau_grid({launch.grid}).call({call}"))
    return _splice(text, spans)


def _splice(text: str, spans: Sequence[tuple[int, int, str]]) -> str:
    """Return a text with some spans replaced, in order."""
    pieces, place = [], 0
    for start, end, other in spans:
        pieces += [text[place:start], other]
        place = end
    return "".join([*pieces, text[place:]])


def with_own_calls(text: str, *, is_cpp: bool) -> str:
    """Give OpenMP loops without a schedule that of the plan, unless threads may rely on their own; simd loops mark
    where an iteration begins, and constructs their private variables."""
    clean = blank_comments(text)
    spans = [(each.start(), each.end(), "") for each in re.finditer(r"\bregister\b", clean)]  # they have no address
    spans += [(place, place, words) for place, words in (*simd_calls(clean), *variable_calls(clean, is_cpp=is_cpp))]
    if not re.search(r"\bnowait\b", text):
        for loop in _FOR.finditer(clean):
            place = loop.start() + len(loop[0].rstrip())
            spans.append((place, place, "" if re.search("schedule|inscan", loop[0]) else " schedule(runtime)"))
    return _splice(text, sorted(spans, key=lambda each: each[0]))
