"""Models that noyau has written: what they say of themselves, what they need, and that they can be optimised again."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from rich.console import Console

import noyau
from noyau.errors import ModelError
from noyau.hosts.onnxruntime import runs, sessions
from noyau.hosts.onnxruntime.model_files import provenance_of
from noyau.hosts.onnxruntime.source_model import open_model
from noyau.jobs.optimize.onnx.options import OptimizeOptions
from noyau.jobs.optimize.onnx.run import OptimizedModel, optimize
from noyau.jobs.show.model import show
from noyau.toolchain.c import compiler as c_compiler
from tests.elf import needs
from tests.small_models import NODE, arrays_for, llama, model_of, twice, value, written

pytestmark = pytest.mark.usefixtures("lasting_workers")
QUICK = OptimizeOptions(keep="all", budget_s=0.01)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def first(folder: Path) -> OptimizedModel:
    made = optimize(written(twice(), folder), QUICK)
    made.save(folder / "fused.onnx")
    return made


def printed(path: Path) -> str:
    file = io.StringIO()
    Console(file=file, width=400, color_system=None).print(show(path))
    return file.getvalue()


def test_a_written_model_says_where_it_comes_from(first, folder):
    model = onnx.load(folder / "fused.onnx")
    told = provenance_of(model)
    assert (told.version, told.target) == (noyau.__version__, c_compiler.level())
    assert told.source_sha256 == hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest()
    assert told.library_sha256 == hashlib.sha256((folder / "fused.so").read_bytes()).hexdigest()
    texts = {one.planned.operator: one.planned.text for one in first.candidates}
    for function in model.functions:
        facts = {entry.key: entry.value for entry in function.metadata_props}
        text_sha256 = hashlib.sha256(texts[function.name].encode()).hexdigest()
        assert facts == {"noyau.target": c_compiler.level(), "noyau.text_sha256": text_sha256}


def test_show_tells_of_it_and_of_its_library(first, folder):
    source = hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest()
    head = f"written by noyau {noyau.__version__} for {c_compiler.level()}; from a model of SHA-256 {source}; "
    rest = "; its kernels are taken apart here"
    assert f"{head}its library fused.so: as written{rest}" in printed(folder / "fused.onnx")
    (folder / "alone.onnx").write_bytes((folder / "fused.onnx").read_bytes())
    assert f"{head}its library alone.so: missing{rest}" in printed(folder / "alone.onnx")
    assert "written by" not in printed(folder / "model.onnx")


@pytest.mark.long
def test_optimised_again_it_gives_the_same_kernels(tmp_path):
    wishes = dataclasses.replace(QUICK, dims={"sequence": 16})  # one binding: it is quicker
    made = optimize(llama("dynamo"), wishes)
    made.save(tmp_path / "once.onnx")
    again = optimize(tmp_path / "once.onnx", wishes)
    assert again.report.nodes_before <= made.report.nodes_before + 10  # some shape arithmetic is in several bodies
    digests = [sorted(kernel.name.rpartition("_")[2] for kernel in each.report.kernels) for each in (made, again)]
    assert digests[0] == digests[1]
    again.save(tmp_path / "twice.onnx")
    assert provenance_of(again.model).source_sha256 == hashlib.sha256((tmp_path / "once.onnx").read_bytes()).hexdigest()
    feeds = {"input_ids": np.arange(10).reshape(2, 5), "attention_mask": np.ones((2, 5), np.int64)}
    wanted = runs.run(sessions.open_session(llama("dynamo")), feeds)
    for library in (tmp_path / "twice.so", None):
        found = runs.run(sessions.open_session(tmp_path / "twice.onnx", library), feeds)
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)


def test_where_nothing_is_kept_the_model_is_the_one_before_it_was_fused(first, folder):
    made = optimize(
        folder / "fused.onnx",
        OptimizeOptions(keep="all", budget_s=0.01, drop=[kernel.name for kernel in first.report.kernels]),
    )
    assert made.library is None
    assert provenance_of(made.model) is None
    assert [node.op_type for node in made.model.graph.node] == [node.op_type for node in twice().graph.node]
    feeds = arrays_for(twice())
    found = runs.run(sessions.open_session(made.model.SerializeToString()), feeds)["y"]
    wanted = runs.run(sessions.open_session(folder / "model.onnx"), feeds)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_forged_body_is_one_clear_error(tmp_path):
    body = [NODE("Add", ["a", "nothing"], ["b"])]
    function = helper.make_function("noyau", "mine", ["a"], ["b"], body, [helper.make_opsetid("", 18)])
    model = model_of([NODE("mine", ["x"], ["y"], domain="noyau")], [value("x")], [value("y")], functions=[function])
    with pytest.raises(ModelError, match="uses 'nothing', which nothing makes"):
        open_model(written(model, tmp_path))


@pytest.mark.skipif(sys.platform != "linux", reason="libraries are ELF files on Linux")
def test_the_library_needs_libc_and_libm_alone(first, folder):
    names, folders = needs(folder / "fused.so")
    assert {name.partition(".")[0] for name in names} <= {"libc", "libm"}
    assert folders == []
    assert needs(Path(np._core._multiarray_umath.__file__))[0]  # one that needs more is read right
