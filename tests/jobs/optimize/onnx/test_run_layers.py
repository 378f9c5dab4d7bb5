"""A deep model costs what a shallow one does: its layers are the same kernels."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from noyau.jobs.optimize.onnx import candidates as onnx_candidates
from noyau.jobs.optimize.onnx.kernel_timing import OnnxBench
from noyau.jobs.optimize.onnx.options import OptimizeOptions
from noyau.jobs.optimize.onnx.run import optimize
from noyau.toolchain.c import compiler as c_compiler
from tests.small_models import NODE, chain, model_of, timed_as, value, written


def layers(count: int):
    """So many layers of sigmoid(x tanh(x)), a product, and exp(-x) of it; each with names and weights of its own."""
    rng, nodes, weights, source = np.random.default_rng(0), [], [], "x"
    for k in range(count):
        weights.append(numpy_helper.from_array(rng.standard_normal((6, 6)).astype(np.float32) / 9, f"w{k}"))
        nodes += chain(source, f"a{k}", f"layer{k}_")
        nodes += [NODE("MatMul", [f"a{k}", f"w{k}"], [f"b{k}"]), NODE("Neg", [f"b{k}"], [f"c{k}"])]
        nodes.append(NODE("Exp", [f"c{k}"], [f"d{k}"]))
        source = f"d{k}"
    nodes.append(NODE("MatMul", [source, "w0"], ["y"]))
    return model_of(nodes, [value("x", ("rows", 6))], [value("y", ("rows", 6))], weights)


@pytest.fixture
def built(monkeypatch):
    """The texts that are compiled for kernels, and the certificates that are made."""
    texts: list[str] = []
    compile_object = c_compiler.compile_object

    def compiling(text, options=c_compiler.DEFAULTS):
        texts.append(text)
        return compile_object(text, options)

    monkeypatch.setattr(onnx_candidates.c_compiler, "compile_object", compiling)
    monkeypatch.setattr(OnnxBench, "compare", timed_as(2))
    return texts


@pytest.mark.usefixtures("lasting_workers")
def test_32_layers_compile_no_more_kernels_than_2(built, tmp_path):
    found = []
    for count in (2, 32):
        built.clear()
        made = optimize(written(layers(count), tmp_path), OptimizeOptions(dims={"rows": 5}))
        kernels = {text for text in built if "noyau_kernel" in text and "RegisterCustomOps" not in text}
        found.append((len(kernels), len(made.candidates), sum(one.certificate is not None for one in made.candidates)))
        assert all(one.kept for one in made.candidates)
        count = len(made.candidates)
        shown = f"<{made.report.model} with {count} of {count} kernels; .report tells of them>"
        assert repr(made) == shown  # not the whole model
    (few, kinds, certificates), many = found
    assert many == (few, kinds, certificates)
    places = sum(kernel.places for kernel in made.report.kernels)
    assert places >= 32 > few
