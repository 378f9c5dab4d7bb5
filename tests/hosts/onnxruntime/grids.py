"""Libraries with operators of CUDA's provider, and stand-ins that run them: of onnxruntime's C interface, which is
exact in the places of its functions, and where there is no GPU of CUDA's driver, which notes launches."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import noyau
from noyau.codegen.cuda.printer import grid_text
from noyau.hosts.onnxruntime.write_back import cached_library
from noyau.toolchain.c import compiler as c_compiler

STAND_INS = Path(__file__).parent / "stand_ins"
CODES = {"sm_80": b"\x7fELF\0of 8.0", "sm_90": b"\x7fELF\0of 9.0", "compute_90": b".version 9.0\n.target sm_90\n"}
GPU = "CUDAExecutionProvider"


@noyau.op("f32[rows, n], f32[n] -> f32[rows, n]")
def rms(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5)) * w


@noyau.op("f32[rows, n] -> f32[rows]")
def total(x):
    return (x * x).sum(-1)


@noyau.op("f32[n] -> f32")
def whole(x):
    return np.sum(x * x)


OPS = (rms, total, whole)


def library(codes: Mapping[str, bytes] | None = None) -> Path:
    """The library of the three, for the CPU and with some code, or with that of this GPU."""
    texts, grids = {}, []
    for each in OPS:
        texts[each.name] = each.generate("c").text
        generated = each.generate("cuda")
        grids.append(grid_text(generated.program.kernels[0], codes or built(generated.text)))
    return cached_library(texts, grids=grids)


def built(text: str) -> dict[str, bytes]:
    from noyau.jobs.optimize.onnx.cuda_kernels import with_ptx
    from noyau.toolchain.cuda import compiler

    return {each: compiler.cubin_of(text, each) for each in with_ptx(())}


@dataclass(frozen=True, slots=True)
class Run:
    """The end of a run: its status, the failure, the memory types of inputs, the outputs, and the driver's notes."""

    status: int
    failure: str
    memory: tuple[int, ...]
    outputs: tuple[np.ndarray, ...]
    notes: tuple[str, ...]


def program(folder: Path) -> Path:
    compiled = c_compiler.compile_object((STAND_INS / "onnxruntime.c").read_text())
    built = shutil.copyfile(c_compiler.program([compiled], ["-ldl"]), folder / "onnxruntime")
    built.chmod(0o755)
    return built


def driver(folder: Path, *flags: str) -> Path:
    """A folder with the stand-in of the driver."""
    options = c_compiler.CompilerOptions(extra=flags)
    made = c_compiler.compile_object((STAND_INS / "libcuda.c").read_text(), options)
    c_compiler.link([made], folder / "libcuda.so.1")
    return folder


def run(
    path: Path,
    operator: str,
    arrays: Sequence[np.ndarray],
    folder: Path,
    provider: str = GPU,
    stands_in: Path | None = None,
    **named: str,
) -> Run:
    """An operator of a library on some arrays, twice in a row."""
    words = [str(program(folder)), str(path), operator, provider, str(folder / "out")]
    for number, array in enumerate(arrays):
        (folder / f"in.{number}").write_bytes(np.ascontiguousarray(array).tobytes())
        words += [str(array.ndim), *map(str, array.shape), str(folder / f"in.{number}")]
    notes = folder / "notes"
    notes.write_text("")
    own = {**os.environ, "NOYAU_LAUNCHES": str(notes), **named}
    if stands_in is not None:
        own["LD_LIBRARY_PATH"] = str(stands_in)
    ran = subprocess.run(words, capture_output=True, text=True, env=own, timeout=60, check=False)
    memory, *shapes = [tuple(map(int, line.split())) for line in ran.stdout.splitlines()] or [()]
    outputs = [np.fromfile(folder / f"out.{number}", np.float32).reshape(shape) for number, shape in enumerate(shapes)]
    return Run(ran.returncode, ran.stderr.strip(), memory, tuple(outputs), tuple(notes.read_text().splitlines()))
