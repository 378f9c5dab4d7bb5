"""A small model of two kernels, opened, planned and looked at, and a bench for it. Support for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from noyau.codegen import plan as codegen_plan
from noyau.codegen.plan import PlannedKernel
from noyau.hosts.onnxruntime.activations import Activations, capture_twice
from noyau.hosts.onnxruntime.inputs import ModelInputs, model_inputs
from noyau.hosts.onnxruntime.session_workers import Workers
from noyau.hosts.onnxruntime.source_model import SourceModel, open_model
from noyau.hosts.onnxruntime.write_back import library, put_back
from noyau.jobs.optimize.onnx.kernel_timing import OnnxBench
from noyau.toolchain.c import compiler as c_compiler
from tests.small_models import compared, twice, written

OPTIONS = c_compiler.CompilerOptions(export=True)
Scene = tuple[SourceModel, Sequence[PlannedKernel], Activations]


def fed(original: SourceModel, kernels: Sequence[PlannedKernel], rows: int = 9) -> ModelInputs:
    return model_inputs(original.imported, [kernel.groups[0].original for kernel in kernels], {"rows": rows}, None, 0)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """The model, its kernels, what they read."""
    original = open_model(written(twice(), tmp_path))
    kernels = codegen_plan.plan(original.cut().groups, original.operators, c_compiler.level()).kernels
    return original, kernels, capture_twice(original, kernels, fed(original, kernels))[0]


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as made:
        yield made


@pytest.fixture
def clear(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Comparisons are clear: twice as fast, or these ratios in turn, one for all inputs of a comparison."""
    ratios: list[float] = []

    def compare_each(self: Workers, before: object, after: object, others: Sequence[object], **_: object) -> object:
        found = compared(ratios.pop(0) if ratios else 2.0)
        return [found for _ in (before, *others)]

    monkeypatch.setattr(Workers, "compare_each", compare_each)
    return ratios


@pytest.fixture
def bench(scene: Scene, workers: Workers) -> Callable[..., OnnxBench]:
    """A bench of the scene's kernels, or of others."""

    def made(kernels: Sequence[PlannedKernel] | None = None, scene: Scene = scene, **given: object) -> OnnxBench:
        original, planned, seen = scene
        kernels = planned if kernels is None else kernels
        fused = put_back(original.model, kernels, original.folder)
        settings = {"workers": workers, "budget_s": 0.01, "sizes": {"rows": 9}, **given}
        return OnnxBench(original, fused, library(kernels, OPTIONS, fused), seen, **settings)

    return made
