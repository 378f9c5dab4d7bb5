"""The kernels that noyau makes of an op's reference, as a check runs them: for every way in which inputs may lie."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from noyau.codegen.language import LANGUAGES, generated_on
from noyau.errors import BuildError, UnsupportedError
from noyau.jobs.check.attempts import Attempt
from noyau.jobs.check.candidates import MANY
from noyau.jobs.check.isolated_kernels import last_first
from noyau.jobs.check.sanitized_runs import Watch
from noyau.kernels.guarded_run import LAYOUTS, End, Guards, How
from noyau.kernels.programs.generate import (
    GeneratedProgram,
    Key,
    Specialization,
    fit_layouts,
    generate,
    key_of,
    specialization_of,
)
from noyau.kernels.programs.run import BuiltProgram, build
from noyau.ops.op import Op
from noyau.sanitizer.records import WatchedRun
from noyau.signatures.binding import Bound, bind
from noyau.signatures.types import Instance
from noyau.toolchain.guard_zones import Order
from noyau.verify.certificate import Certificate

Array = np.ndarray
NO_GPU = "there is no CUDA device with triton; TRITON_INTERPRET=1 in the environment has it interpreted"
_DRIVER = (Path("/proc/driver/nvidia"), Path("/dev/nvidiactl"))  # there where an NVIDIA driver is


class FromReference:
    """The generated kernels of an op in a language. They run in this process: they are noyau's own."""

    threads: tuple[int, ...] = (1, 2, MANY)
    layouts: tuple[str, ...] = tuple(LAYOUTS)
    in_pieces = True
    is_replayed = is_trusted = False

    def __init__(self, op: Op[..., Any], language: str) -> None:
        self.op, self.language, self.name = op, language, language
        self.called, self.place = f"{op.name}[{language}]", op.description.place
        self.constants: Mapping[str, Any] = op.description.reference.constants
        self.built: dict[tuple[Key, bool], list[BuiltProgram | str]] = {}
        self.texts: dict[Key, list[GeneratedProgram]] = {}
        self.reason = ""  # why the last inputs were not taken

    @property
    def skipped(self) -> str:
        language = LANGUAGES[self.language]
        try:
            language.require_compiler()
        except BuildError as error:
            return str(error)
        if language.on_gpu:
            return "" if has_gpu() else NO_GPU
        return next((f"{name} is not installed" for name in language.packages if not _is_there(name)), "")

    def open(self, instance: Instance) -> None:
        """Whether it takes an instance shows with the sizes."""

    def takes(self, instance: Instance, arrays: Sequence[Array], *, runs: bool = True) -> bool:
        program = self.made(self.bound(arrays), runs=runs)
        self.reason = program if isinstance(program, str) else self.reason
        return isinstance(program, BuiltProgram)

    def run(self, instance: Instance, arrays: Sequence[Array], how: How) -> list[Array]:
        bound = self.bound(arrays)
        inputs = [End(v.name, v.dtype, a.shape) for v, a in zip(instance.inputs, bound.arrays, strict=True)]
        outputs = [End(v.name, v.dtype, s) for v, s in zip(instance.outputs, bound.shapes, strict=True)]

        def call(arguments: Sequence[Array], results: Sequence[Array]) -> Sequence[Array]:
            return self.called_on(arguments, results, how)

        return Guards(call, self.called, tuple(inputs), tuple(outputs)).run(bound.arrays, how)

    def called_on(self, inputs: Sequence[Array], outputs: Sequence[Array], how: How) -> Sequence[Array]:
        """The results, written to `outputs`: for arrays as they lie, or packed, where no kernel reads them so."""
        bound = self.bound(inputs)
        program = self.made(bound)
        if isinstance(program, str):
            bound = self.bound([np.require(array, requirements=["C", "A"]) for array in inputs])
            program = self.made(bound)
        if isinstance(program, str):
            raise UnsupportedError(program)
        arrays = fit_layouts(bound.arrays, program.generated.wanted.layouts)
        if how.pieces > 1 or LANGUAGES[self.language].on_gpu:
            order: Order = last_first
            for target, result in zip(
                outputs, program.call_guarded(*arrays, pieces=how.pieces, order=order), strict=True
            ):
                target[...] = result
            return outputs
        return program(*arrays, out=outputs, threads=max(how.threads, 1))

    def bound(self, arrays: Sequence[Array]) -> Bound:
        assert self.op.signature is not None
        return bind(self.op.signature, arrays, self.op.known(self.constants), self.op.name)

    def made(self, bound: Bound, *, runs: bool = True) -> BuiltProgram | str:
        """The program for arrays like these, built once; or why there is none. Without `runs` it is only watched."""
        assert self.op.signature is not None
        request = specialization_of(self.op.signature, bound, self.constants)
        key = key_of(request)
        for each in self.built.get((key, True), []) + self.built.get((key, runs), []):
            if isinstance(each, str) or each.generated.holds(bound.sizes):
                return each
        program = self.tried(request, runs)
        self.built.setdefault((key, runs), []).append(program)
        return program

    def tried(self, request: Specialization, runs: bool) -> BuiltProgram | str:
        try:
            return build(self.generated(request), runs=runs)
        except UnsupportedError as error:
            return str(error)

    def generated(self, request: Specialization) -> GeneratedProgram:
        """The text for arrays like these: what was watched is what runs."""
        texts = self.texts.setdefault(key_of(request), [])
        text = next((each for each in texts if each.holds(request.sizes)), None)
        if text is None:
            text = generate(self.op.description, request, self.language)
            texts.append(text)
        return text

    def watched(self) -> Watch | str | None:
        """Those that are compiled as a user's are, and have an interpreter of their own."""
        return self.watch if LANGUAGES[self.language].thread_pool else None

    def watch(self, attempt: Attempt, arrays: Sequence[Array], size: str) -> WatchedRun:
        from noyau.sanitizer.numba.generated import watch_generated

        bound = self.bound(arrays)
        program = self.made(bound, runs=False)
        if isinstance(program, str):
            raise UnsupportedError(program)
        inputs = fit_layouts(bound.arrays, program.generated.wanted.layouts)
        return watch_generated(program, inputs, self.op.name, self.name, size)

    def passed(self, instances: Sequence[Instance], certificate: Certificate) -> None:
        """Nothing: what is generated has a certificate of its own where it is called."""

    def failed(self, fault: str) -> None:
        """Nothing, as above."""

    def notes(self) -> list[str]:
        if LANGUAGES[self.language].on_gpu:
            return ["generated; in Triton's interpreter" if is_interpreted() else "generated; on the GPU"]
        threads = ", ".join(map(str, self.threads))
        return [f"generated; in pieces, and with {threads} threads"]


def from_reference(op: Op[..., Any]) -> list[FromReference]:
    """The generated kernels of an op, one for each language there is; none without a signature. In Triton where there
    is a GPU, or where it interprets."""
    languages = (*generated_on(gpu=False), *(generated_on(gpu=True) if has_gpu() else ()))
    kernels = [FromReference(op, language) for language in languages] if op.signature is not None else []
    return [each for each in kernels if each.name not in op.kernels]


@cache
def begin() -> None:
    """Load Numba and compile with it once, so that copies of this process need not."""
    if _is_there("numba"):
        import_module("noyau.sanitizer.numba.generated")
        import_module("noyau.toolchain.numba.kernel").begin()


def has_gpu() -> bool:
    """Whether kernels in Triton can run: it is installed, and there is a driver, or it is asked to interpret."""
    return _is_there("triton") and _is_there("torch") and (is_interpreted() or any(path.exists() for path in _DRIVER))


def is_interpreted() -> bool:
    """Whether Triton is asked to interpret kernels."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False
