"""C text to objects and shared libraries, by an available compiler: cc, gcc, clang, or the clang in ziglang.

The text is passed as a file of a fixed name in a private folder; no name of a user or of a model is in a path or in an
argument, and there is no shell. Results are kept in the disk cache."""

import contextlib
import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile
from pathlib import Path

from noyau.errors import BuildError, OutputError
from noyau.toolchain import cache as toolchain_cache
from noyau.workers.signals import defer_signals, kill_group

ABI = 1  # NOYAU_ABI of codegen/c/noyau.h
LIBRARY_SUFFIX = ".dll" if sys.platform == "win32" else ".so"
_NAMES = ("cc", "gcc", "clang")
_FAULT = re.compile("error|undefined|multiple definition")  # in what a compiler or a linker says
_REMEDY = "install gcc or clang, or run: pip install 'noyau-kernels[cc]'"

_LINKED = ("-fopenmp", "-pthread")
# Never -ffast-math or its parts: a library that gcc before 13 links so turns denormals off in the process.
_FLAGS = "-std=c11 -O3 -fwrapv -fno-math-errno -fno-trapping-math -ffp-contract=fast -fPIC -fvisibility=hidden".split()
# Else gcc splits the code after a limit into paths of its own, and a loop with paths is not vectorised: the sigmoid
# after a tanh took five times as long. Without -ftree-pre it hoists no conversions of sizes to floats: a schedule does.
_GCC_FLAGS = ("-fno-tree-pre",)  # clang does not know it
_EXPORT = '-DNOYAU_EXPORT=__attribute__((visibility("default")))'
# Include paths of the environment would be inputs that the key does not contain.
_HIDDEN_INPUTS = ("CPATH", "C_INCLUDE_PATH", "CCC_OVERRIDE_OPTIONS")

# The flags that each level adds to the previous one, as spelt in /proc/cpuinfo.
_X86_LEVELS = {
    "x86-64": "",
    "x86-64-v2": "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3",
    "x86-64-v3": "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave",
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
}
_TARGETS = {
    **dict.fromkeys(("x86_64", "amd64"), tuple(_X86_LEVELS)),
    **dict.fromkeys(("aarch64", "arm64"), ("armv8-a", "armv8.2-a", "armv9-a")),
}
# zig names a processor where gcc and clang name a level.
_ZIG_TARGETS = {"armv8-a": "generic", "armv8.2-a": "generic+v8_2a", "armv9-a": "generic+v9a"}


@dataclass(frozen=True, slots=True)
class CompilerOptions:
    """The options of the C compiler; a part of the cache's key.

    `compiler`: a name or a path, or None for the first available one. `target`: a level such as "x86-64-v3", or
    "native", this machine's. `export`: the kernels' structures are visible, for a library that noyau itself loads.
    `extra`: more flags. `timeout_s`: of one run of the compiler. `called`: the file name of the text. `authored`: the
    text is a user's own, so that flags for generated texts are omitted."""

    compiler: str | None = None
    target: str = "native"
    export: bool = False
    extra: tuple[str, ...] = ()
    timeout_s: float = 120.0
    called: str = "kernel.c"
    authored: bool = False


@dataclass(frozen=True, slots=True)
class Compiler:
    """A working compiler: the start of its command line, and the first line of its `--version`."""

    command: tuple[str, ...]
    version: str

    @property
    def is_zig(self) -> bool:
        return self.command[1:] == ("-m", "ziglang", "cc")


DEFAULTS = CompilerOptions()
_NAMED: ContextVar[str | None] = ContextVar("noyau_level", default=None)
runs = [0]  # runs of compilers by this process; cached results add none
_running: set[subprocess.Popen[bytes]] = set()  # the compilers that run now, for end_all
_starting: set[object] = set()  # one object each for compilers that are starting, which end_all cannot kill yet


def find_compiler(name: str | None = None) -> Compiler:
    """The compiler of this name or path ("zig" is the one in ziglang), or the first that works.

    BuildError if none does; it names what to install."""
    compiler = _find(name, os.environ.get("PATH", ""))
    if compiler is not None:
        return compiler
    if name is not None:
        raise BuildError(f"the compiler {name!r} is not on PATH or does not run; name another, or {_REMEDY}")
    raise BuildError(f"no C compiler: neither {', '.join(_NAMES)} on PATH nor ziglang is there; {_REMEDY}")


def level() -> str:
    """The meaning of "native" here: the x86-64 level of this processor, "armv8-a" on 64-bit ARM, else "generic"; or the
    level of `at_level`."""
    return _NAMED.get() or level_of(platform.machine(), _processor_flags())


@contextlib.contextmanager
def at_level(name: str) -> Iterator[None]:
    """Let "native" mean this level within the block, in this thread. BuildError where this processor has less."""
    here, levels = level_of(platform.machine(), _processor_flags()), _TARGETS.get(platform.machine().lower(), ())
    if name != here and name not in levels[: levels.index(here) if here in levels else 0]:
        raise BuildError(f"this processor is {here}, and kernels are for {name}")
    token = _NAMED.set(name)
    try:
        yield
    finally:
        _NAMED.reset(token)


def level_of(machine: str, flags: frozenset[str]) -> str:
    """The highest level whose flags, and those of all below it, are among the flags of /proc/cpuinfo."""
    lowest, *others = _TARGETS.get(machine.lower(), ("generic",))
    here = takewhile(lambda name: name in _X86_LEVELS and flags.issuperset(_X86_LEVELS[name].split()), others)
    return [lowest, *here][-1]


def resolve_target(target: str) -> str:
    """A target as a level; BuildError where this machine's compilers have no such level."""
    if target == "native":
        return level()
    known = _TARGETS.get(platform.machine().lower(), ("generic",))
    if target not in known:
        raise BuildError(f"unknown target {target!r}: native, {', '.join(known)} are the targets of this machine")
    return target


def compile_object(text: str, options: CompilerOptions = DEFAULTS) -> Path:
    """The object file of a C text, cached or built. BuildError where the compiler is missing or refuses it."""
    compiler = find_compiler(options.compiler)
    flags = _compile_flags(options, compiler)
    key = _key("object", compiler, flags, [text])
    return toolchain_cache.ensure(key, ".o", lambda path: _compile(text, (*compiler.command, *flags), path, options))


def link(objects: Sequence[Path], output: Path, options: CompilerOptions = DEFAULTS) -> None:
    """Write the shared library of some objects; it appears whole or not at all.

    BuildError where a name is undefined or an object is missing, OutputError where `output` cannot be written."""
    _link(objects, _link_flags(options), output, options)


def _link(objects: Sequence[Path], words: Sequence[str], output: Path, options: CompilerOptions) -> None:
    compiler = find_compiler(options.compiler)
    with tempfile.TemporaryDirectory(prefix="noyau-") as name:
        folder = Path(name)
        # Copy objects under plain names, so that no folder of a user is on the command line
        for number, source in enumerate(objects):
            try:
                shutil.copyfile(source, folder / f"{number}.o")
            except OSError as error:
                raise BuildError(f"the object {source} is gone ({error.strerror}); build it again") from error
        names = [f"{number}.o" for number in range(len(objects))]
        _run((*compiler.command, *names, *words, "-lm", "-o", "linked"), folder, options.timeout_s, "link")
        _require(folder / "linked", compiler.command[0])
        _install(folder / "linked", output)


def compile_library(texts: Sequence[str], options: CompilerOptions = DEFAULTS) -> Path:
    """The shared library of some C texts, each exporting its kernels, cached or built.

    BuildError as in compile_object and link."""
    options = replace(options, export=True)
    compiler = find_compiler(options.compiler)
    key = _key("library", compiler, (*_compile_flags(options, compiler), *_link_flags(options)), texts)

    def produce(path: Path) -> None:
        link([compile_object(text, options) for text in texts], path, options)

    return toolchain_cache.ensure(key, LIBRARY_SUFFIX, produce)


def shared_library(objects: Sequence[Path], options: CompilerOptions = DEFAULTS) -> Path:
    """The shared library of some objects, cached or linked. BuildError as in `link`."""
    compiler = find_compiler(options.compiler)
    try:
        contents = [hashlib.sha256(path.read_bytes()).hexdigest() for path in objects]
    except OSError as error:
        raise BuildError(f"an object is gone ({error.strerror}: {error.filename}); build it again") from error
    key = _key("shared", compiler, _link_flags(options), contents)
    return toolchain_cache.ensure(key, LIBRARY_SUFFIX, lambda path: link(objects, path, options))


def program(objects: Sequence[Path], words: Sequence[str], options: CompilerOptions = DEFAULTS) -> Path:
    """The executable of some objects, cached or linked; `words`: more arguments for the linker. The cached file has no
    execute permission: copy it. BuildError as in `link`."""
    compiler = find_compiler(options.compiler)
    key = _key("program", compiler, words, [hashlib.sha256(path.read_bytes()).hexdigest() for path in objects])
    return toolchain_cache.ensure(key, ".program", lambda path: _link(objects, words, path, options))


@cache
def _find(name: str | None, _path: str) -> Compiler | None:
    """As find_compiler, or None; `_path` is part of the memoisation key, so that another PATH is searched again."""
    for candidate in _NAMES if name is None else (name,):
        path = None if candidate == "zig" else shutil.which(candidate)
        compiler = path and _try((os.path.abspath(path),))
        if compiler:
            return compiler
    return _find_zig() if name in (None, "zig") else None


def _find_zig() -> Compiler | None:
    import importlib.metadata  # its import takes as long as half of this package's own compilers

    try:
        release = importlib.metadata.version("ziglang")
    except importlib.metadata.PackageNotFoundError:
        return None
    compiler = _try((sys.executable, "-m", "ziglang", "cc"))
    return compiler and replace(compiler, version=f"{compiler.version} (ziglang {release})")


def _try(command: tuple[str, ...]) -> Compiler | None:
    """This compiler, or None if it does not even print its version (a stub, a broken link)."""
    failures = contextlib.suppress(OSError, subprocess.TimeoutExpired)
    with failures, tempfile.TemporaryDirectory(prefix="noyau-") as folder:
        status, output = _execute((*command, "--version"), Path(folder), 60.0)
        return Compiler(command, output.splitlines()[0].strip()) if status == 0 and output.strip() else None
    return None


@cache
def _processor_flags() -> frozenset[str]:
    """The flags that all cores of this machine have, on Linux; else empty, which means the lowest level."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return frozenset()
    cores = [frozenset(line.partition(":")[2].split()) for line in lines if line.startswith("flags")]
    return frozenset.intersection(*cores) if cores else frozenset()


def _compile_flags(options: CompilerOptions, compiler: Compiler) -> tuple[str, ...]:
    target = resolve_target(options.target)
    level = _ZIG_TARGETS.get(target, target.replace("-", "_")) if compiler.is_zig else target
    march = () if target == "generic" else (f"-march={level}",)
    own = () if options.authored or "clang" in compiler.version else _GCC_FLAGS
    return (*_FLAGS, *own, *march, *((_EXPORT,) if options.export else ()), *options.extra)


def _link_flags(options: CompilerOptions) -> tuple[str, ...]:
    """The flags of the linker; among them the author's that it needs too: OpenMP, threads, and libraries."""
    own = ("-shared", "-Wl,--no-undefined") if sys.platform == "linux" else ("-shared",)
    return (*own, *(flag for flag in options.extra if flag in _LINKED or flag.startswith(("-l", "-L"))))


def _key(kind: str, compiler: Compiler, flags: Sequence[str], texts: Sequence[str]) -> str:
    return toolchain_cache.digest(kind, str(ABI), *compiler.command, compiler.version, str(len(flags)), *flags, *texts)


def _compile(text: str, command: Sequence[str], output: Path, options: CompilerOptions) -> None:
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BuildError(f"the C text is not Unicode at character {error.start}; nothing was compiled") from error
    with tempfile.TemporaryDirectory(prefix="noyau-") as name:
        folder = Path(name)
        (folder / options.called).write_bytes(data)
        try:
            _run((*command, "-c", options.called, "-o", "kernel.o"), folder, options.timeout_s, "compile")
        except BuildError as error:
            key = toolchain_cache.digest("refused", data)
            path = toolchain_cache.store(key, ".c", lambda path: path.write_bytes(data))
            raise BuildError(f"{error}; the text is in {path}") from None
        _require(folder / "kernel.o", command[0])
        shutil.copyfile(folder / "kernel.o", output)


def _require(file: Path, tool: str) -> None:
    """BuildError if a compiler that reported no error has not written its output."""
    if not file.is_file():
        raise BuildError(f"{Path(tool).name} says that all is well, and wrote nothing; {_REMEDY}")


def _install(source: Path, output: Path) -> None:
    """Copy a file into the folder of `output`, then rename it, so that no partial file is visible."""
    fresh = output.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        shutil.copyfile(source, fresh)
        fresh.replace(output)
    except OSError as error:
        raise OutputError(f"{output} cannot be written: {error.strerror}; give a folder that has room") from error
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def _run(command: Sequence[str], folder: Path, timeout_s: float, verb: str) -> None:
    """Run a compiler in a folder; BuildError with the first lines of its errors."""
    tool = Path(command[0]).name
    runs[0] += 1
    try:
        status, output = _execute(command, folder, timeout_s)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{tool} did not {verb} within {timeout_s:g} s and was ended") from None
    except OSError as error:
        raise BuildError(f"{tool} does not run: {error.strerror}; {_REMEDY}") from error
    if status and "No space left on device" in output:
        message = f"{tool} has no room to {verb} in {folder.parent}: {summary(output)}; make room there"
        raise OutputError(message) from OSError(errno.ENOSPC, "No space left on device")
    if status:
        raise BuildError(f"{tool} does not {verb} it (status {status}): {summary(output)}")


def summary(output: str) -> str:
    """The first three lines with an error (or the first three) as one printable line: texts may be hostile."""
    lines = list(dict.fromkeys(line.strip() for line in output.splitlines() if line.strip()))
    faults = [line for line in lines if _FAULT.search(line)] or lines or ["it says nothing"]
    return "".join(letter if letter.isprintable() else "?" for letter in " | ".join(line[:200] for line in faults[:3]))


def _execute(command: Sequence[str], folder: Path, timeout_s: float) -> tuple[int, str]:
    """The exit status and the output. On a time-out or Ctrl-C the compiler is killed with all its children."""
    environment = {name: value for name, value in os.environ.items() if name not in _HIDDEN_INPUTS}
    environment |= {"LC_ALL": "C", "TMPDIR": str(folder)}  # a killed compiler's own temporary files go with the folder
    process, start = None, object()
    _starting.add(start)
    try:
        with defer_signals():  # an interrupt within Popen would leave an untracked compiler
            process = subprocess.Popen(
                command, cwd=folder, env=environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            _running.add(process)
        if start not in _starting:
            kill_group(process)
        output, _ = process.communicate(timeout=timeout_s)
    except BaseException:
        if process is not None:
            kill_group(process)
            if process.stdout is not None:
                process.stdout.close()
            process.wait()
        raise
    finally:
        _starting.discard(start)
        if process is not None:
            _running.discard(process)
    return process.returncode, output.decode("utf-8", "replace")


def end_all() -> None:
    """Kill every compiler that runs for this process, in any thread: their calls fail with a BuildError."""
    _starting.clear()  # first, so that each starting compiler sees this or is in _running
    for process in _running.copy():  # other threads change the set
        kill_group(process)


# The author's headers that a text includes: beside it, or in folders of the flags.

_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">\n]+)[">]', re.MULTILINE)
_BY_NAME = re.compile(r"^\s*#\s*include\s*\w", re.MULTILINE)  # of a macro
_MACRO = re.compile(r'(?:^\s*#\s*define\s+\w+\s+|^-D\w+=)["<]([^">\n]+)[">]', re.MULTILINE)
_PLACE = re.compile(r"-(I|isystem|iquote|idirafter|include|imacros)=?(.*)")


def header_flags(text: str, flags: Sequence[str] = (), folder: Path | None = None) -> tuple[str, ...]:
    """Additional flags with which a compiler finds the headers in `folder`, and a digest of all existing headers that
    may be included, so that results with other headers are not reused; empty if there are none."""
    folders, files = [folder] if folder else [], list[str]()
    words = iter(flags)
    for place in filter(None, map(_PLACE.fullmatch, words)):
        named = place[2] or next(words, "")
        files.append(named) if place[1] in ("include", "imacros") else folders.append(Path(named))
    lines = "\n".join([text, *flags, *(f'#include "{each}"' for each in files)])
    contents = dict(_headers(lines, folders, set())) if _INCLUDE.search(lines) or _BY_NAME.search(text) else {}
    if not contents and not _BY_NAME.search(text):
        return ()
    digest = hashlib.sha256(b"\0".join(contents[path] for path in sorted(contents))).hexdigest()
    return *(("-iquote", str(folder)) if folder else ()), f"-DNOYAU_HEADERS_{digest[:16]}"


def _headers(text: str, folders: Sequence[Path], seen: set[Path]) -> Iterator[tuple[Path, bytes]]:
    """The files of these folders that a text names, and those that they name, each once."""
    for name in (*_INCLUDE.findall(text), *_MACRO.findall(text)):
        for path in ((folder / name).resolve() for folder in folders):
            if path not in seen and path.is_file():
                seen.add(path)
                content = path.read_bytes()
                yield path, content
                yield from _headers(content.decode("utf-8", "replace"), [path.parent, *folders], seen)
