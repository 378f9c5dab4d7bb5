"""The machine that times are measured on: its processor, its compiler and its installed packages."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from noyau.errors import BuildError
from noyau.text import fields_json
from noyau.toolchain.c import compiler as c_compiler
from noyau.version import __version__
from noyau.workers.resources import processors

PACKAGES = {
    "numpy": ("numpy",),
    "onnx": ("onnx",),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml"),
}
_CPU_NAMES = Path("/proc/cpuinfo")


def this_machine(options: c_compiler.CompilerOptions = c_compiler.DEFAULTS) -> Machine:
    """This machine, with the compiler and the level of these options; a missing part is "none"."""
    level, compiler, os = c_compiler.resolve_target(options.target), compiler_version(options), platform.uname()
    versions = {"noyau": __version__, "python": platform.python_version()}
    versions |= {name: _release(names) for name, names in PACKAGES.items()}
    return Machine(cpu_model(), processors(), level, compiler, f"{os.system} {os.release}", versions)


@cache  # the file is slow, for Linux queries each core's clock; certificates' keys need it
def cpu_model(path: Path = _CPU_NAMES) -> str:
    """The processor's name, or its architecture if Linux does not report a name."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, names), platform.processor() or platform.machine() or "unknown")


def compiler_version(options: c_compiler.CompilerOptions = c_compiler.DEFAULTS) -> str:
    """The version of the C compiler that builds use, or "none"."""
    try:
        return c_compiler.find_compiler(options.compiler).version
    except BuildError:
        return "none"


@cache
def _release(names: tuple[str, ...]) -> str:
    from importlib.metadata import PackageNotFoundError, version  # imports all of email

    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            return version(name)
    return "none"


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a run: `cores` that this process may use, the `level` that "native" means to builds."""

    cpu: str
    cores: int
    level: str
    compiler: str
    os: str
    versions: Mapping[str, str]

    @property
    def text(self) -> str:
        """The processor as text."""
        return f"{self.cpu}, {self.cores} cores, {self.level}"

    def to_json(self) -> dict[str, Any]:
        return {**fields_json(self), "versions": dict(sorted(self.versions.items()))}
