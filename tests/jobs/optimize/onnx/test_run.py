"""The main job from end to end, on the LLaMA of both exporters and on models of every kind."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

import noyau
from noyau.codegen import plan as codegen_plan
from noyau.errors import InputError, ModelError
from noyau.hosts.onnxruntime import runs, sessions, write_back
from noyau.hosts.onnxruntime.function_bodies import is_own
from noyau.jobs.optimize.onnx import candidates as onnx_candidates
from noyau.jobs.optimize.onnx.kernel_timing import OnnxBench
from noyau.jobs.optimize.onnx.options import OptimizeOptions
from noyau.jobs.optimize.onnx.run import OptimizedModel, optimize
from noyau.toolchain.c import compiler as c_compiler
from tests.hosts.kernels import build_library
from tests.small_models import (
    BARE,
    CHAIN,
    KINDS,
    REFUSES,
    WRONG,
    arrays_for,
    llama,
    plain,
    spoilt,
    timed_as,
    twice,
    written,
)

pytestmark = pytest.mark.usefixtures("lasting_workers")
QUICK = OptimizeOptions(keep="all", budget_s=0.01)  # with "all", rounds go on whoever loses
SHAPES = [(1, 1), (1, 7), (2, 128), (1, 1024)]
KERNEL_KEYS = (
    "name places replaces language verdict speedup speedup_low speedup_high bytes floor_ratio error error_unfused "
    "kept reason bindings"
).split()


def quick(model: onnx.ModelProto, folder: Path, **wishes: object) -> OptimizedModel:
    return optimize(written(model, folder), dataclasses.replace(QUICK, **wishes))


def told(made: OptimizedModel) -> tuple[str, ...]:
    """What a report says of inputs and checks; whether the clock finds the machine noisy is no matter of a test."""
    return tuple(line for line in made.report.inputs if "AMBIGUOUS" not in line and "--fresh" not in line)


@cache
def optimized_llama(exporter: str) -> OptimizedModel:
    return optimize(llama(exporter), dataclasses.replace(QUICK, dims={"sequence": 128}))  # one binding: it is quicker


@pytest.fixture(
    scope="module",
    params=[pytest.param("dynamo", marks=pytest.mark.as_shipped), pytest.param("torchscript", marks=pytest.mark.long)],
)
def either(request) -> tuple[Path, OptimizedModel]:
    return llama(request.param), optimized_llama(request.param)


@pytest.fixture(scope="module")
def saved(either, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "fused.onnx"
    either[1].save(path)
    return path


def tokens(batch: int, length: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(batch * length)
    mask = np.ones((batch, length), np.int64)
    mask[-1, : length // 3] = 0  # padded on the left
    return {"input_ids": rng.integers(0, 1024, (batch, length)), "attention_mask": mask}


def answers(model: Path | bytes, feeds: dict[str, np.ndarray], library: Path | None = None) -> dict[str, np.ndarray]:
    return runs.run(sessions.open_session(model, library, threads=1), feeds)


def assert_close(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], tolerance: float = 1e-5) -> None:
    assert found.keys() == wanted.keys()
    for name, want in wanted.items():
        assert (found[name].dtype, found[name].shape) == (want.dtype, want.shape)
        if want.size:
            assert np.abs(found[name] - want).max() <= tolerance * max(np.abs(want).max(), 1e-30)


def with_padding_seen(feeds: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The results at the tokens that are there: those of padding are the mean of everything, or of nothing."""
    seen = feeds["attention_mask"].astype(bool)
    return {name: array[seen] for name, array in found.items()}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_plain_onnxruntime_runs_the_llama_right_with_and_without_the_library(either, saved, shape):
    feeds = tokens(*shape)
    wanted = with_padding_seen(feeds, answers(either[0], feeds))
    for library in (saved.with_suffix(".so"), None):
        assert_close(with_padding_seen(feeds, answers(saved, feeds, library)), wanted)


def test_the_session_of_the_result_is_that_of_the_files(either, saved):
    feeds = tokens(2, 9)
    session = either[1].session(threads=1)
    assert_close(runs.run(session, feeds), answers(saved, feeds, saved.with_suffix(".so")), 0)


def test_the_report_has_the_fields_that_it_promises(either, saved):
    report = json.loads(json.dumps(either[1].report.to_json(), allow_nan=False))
    names = "schema_version machine model nodes_before nodes_after ceiling kernels end_to_end not_fused inputs"
    assert list(report) == [*names.split(), "conditions"]
    assert all(list(kernel) == KERNEL_KEYS for kernel in report["kernels"])
    assert list(report["end_to_end"]) == ["before_s", "after_s", "verdict", "speedup", "bindings", "reason"]
    assert all(list(each) == ["nodes", "reason"] for each in report["not_fused"])
    model = onnx.load(saved)
    assert report["nodes_after"] == len(model.graph.node) < report["nodes_before"]
    assert report["model"] == either[0].name
    assert sum("made up" in line for line in report["inputs"]) == 2
    for kernel in report["kernels"]:
        assert kernel["kept"] and kernel["language"] == "c" and kernel["reason"] == ""
        assert kernel["bytes"] > 0 and kernel["error"] >= 0 and kernel["replaces"]
        assert kernel["speedup_low"] <= kernel["speedup"] <= kernel["speedup_high"]


def test_every_kernel_is_certified_on_activations_of_the_model(either):
    for one in either[1].candidates:
        assert one.certificate.ok and one.certificate.captured and one.certificate.made_up, one.evidence
        places = min(len(one.planned.groups), 2)
        assert sum(outcome.captured for outcome in one.certificate.outcomes) == places


def test_a_kernel_ships_with_its_certificate(either, saved):
    functions = {function.name: function for function in onnx.load(saved).functions if is_own(function.domain)}
    assert set(functions) == {kernel.name for kernel in either[1].report.kernels}
    for one in either[1].candidates:
        text, name = either[1].source(one.planned.operator), one.planned.operator
        opening = text.partition("*/")[0]
        assert text.startswith(f"/* {name}: ")
        assert all(word in opening for word in (*one.planned.replaces, "reads ", "writes ", " bytes, does ", "flops"))
        assert "certificate: right on " in opening
        assert text.endswith(one.planned.text)
        assert "certificate: right on " in functions[name].doc_string


def test_a_kernel_that_is_not_there_is_named(either):
    with pytest.raises(InputError, match=r"no kernel nonsense; its kernels are: .*_[0-9a-f]{8}"):
        either[1].source("nonsense")


@pytest.fixture
def refusing(tmp_path) -> tuple[Path, dict[str, str]]:
    """The fused LLaMA, and two of its kernels that refuse to give a result: whoever runs one is told."""
    made = optimized_llama("dynamo")
    made.save(tmp_path / "fused.onnx")
    texts = {one.planned.operator: spoilt(one.planned, REFUSES).text for one in made.candidates[-2:]}
    return tmp_path / "fused.onnx", texts


@pytest.mark.as_shipped  # as what it shares with `either` is
def test_a_library_on_a_lesser_cpu_is_not_used(refusing, tmp_path):
    path, texts = refusing
    feeds = tokens(1, 5)
    domain = next(function.domain for function in onnx.load(path).functions)
    build_library(texts, tmp_path / "here.so", domain=domain)
    with pytest.raises(InputError, match="noyau::"):
        answers(path, feeds, tmp_path / "here.so")
    if c_compiler.level() == "x86-64" or "x86-64" not in c_compiler.level():
        pytest.skip("levels are those of x86-64, and this machine is of the lowest")
    build_library(texts, tmp_path / "lesser.so", simulated_level=1, domain=domain)
    assert_close(answers(path, feeds, tmp_path / "lesser.so"), answers(llama("dynamo"), feeds))


@pytest.mark.as_shipped
def test_an_operator_of_another_models_library_is_not_picked_up(refusing, tmp_path):
    """One whose kernel has the same name but for its digest."""
    path, texts = refusing
    feeds = tokens(1, 5)
    others = {name: f"{name[:-1]}{'1' if name[-1] == '0' else '0'}" for name in texts}
    domain = next(function.domain for function in onnx.load(path).functions)
    others = {others[name]: text.replace(name, others[name]) for name, text in texts.items()}
    build_library(others, tmp_path / "o.so", domain=domain)
    assert_close(answers(path, feeds, tmp_path / "o.so"), answers(llama("dynamo"), feeds))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "no inputs"])
def test_models_of_every_kind_are_fused_and_stay_right(kind, tmp_path):
    model = KINDS[kind]
    made = quick(model, tmp_path)
    kept = {word for kernel in made.report.kept for word in kernel.replaces}
    assert kept >= set(CHAIN) or kept == {"F", "Exp"}, made.report
    assert all(one.certificate.ok for one in made.candidates)
    made.save(tmp_path / "out.onnx")
    if kind in ("strings", "sequence in", "strange operator", "random", "any rank"):
        return  # onnxruntime does not run it with floats, or not twice alike
    feeds = arrays_for(model)
    feeds |= {"c": np.array(True)} if kind == "branches" else {}
    if kind == "sequence out":
        outputs = [
            session.run(None, feeds)[0] for session in (sessions.open_session(tmp_path / "model.onnx"), made.session())
        ]
        assert_close(*({str(k): array for k, array in enumerate(output)} for output in outputs))
        return
    for library in (tmp_path / "out.so", None):
        tolerance = 1e-3 if kind == "float16" else 1e-5
        assert_close(answers(tmp_path / "out.onnx", feeds, library), answers(tmp_path / "model.onnx", feeds), tolerance)


@pytest.mark.parametrize("kind", ["strings", "sequence in", "any rank"])
def test_inputs_that_cannot_be_made_up_are_named(kind, tmp_path):
    made = quick(KINDS[kind], tmp_path)
    assert any("of a type that cannot be made up" in line for line in made.report.inputs)
    assert made.report.end_to_end.before_s is None
    assert made.report.kernels[0].verdict is not None


def test_what_stands_after_an_operator_that_onnxruntime_does_not_have_is_kept_on_demand_alone(tmp_path):
    made = quick(KINDS["strange operator"], tmp_path)
    before, after = made.report.kernels
    assert before.verdict is not None and after.verdict is None
    assert (after.kept, after.reason) == (True, "not timed: what it reads could not be captured")
    assert any(
        line.startswith("com.example::Strange is no operator of plain onnxruntime") for line in made.report.inputs
    )
    assert made.candidates[1].certificate.ok and not made.candidates[1].certificate.captured
    faster = quick(KINDS["strange operator"], tmp_path, keep="not-slower")
    assert not faster.report.kernels[1].kept


@pytest.mark.parametrize("kind", BARE)
def test_where_nothing_can_be_fused_the_output_is_the_input(kind, tmp_path):
    made = quick(BARE[kind], tmp_path)
    made.save(tmp_path / "out.onnx")
    assert made.model.graph.SerializeToString() == BARE[kind].graph.SerializeToString()
    assert not (tmp_path / "out.so").exists()
    assert (made.library, made.report.kernels, made.report.inputs) == (None, (), ())
    assert "nothing in this model could be fused" in str(made.report)


def test_where_nothing_wins_the_output_is_the_input(tmp_path, monkeypatch):
    monkeypatch.setattr(OnnxBench, "compare", timed_as(0.5))
    made = quick(twice(), tmp_path, keep="faster")
    made.save(tmp_path / "out.onnx")
    assert onnx.load(tmp_path / "out.onnx").graph.SerializeToString() == twice().graph.SerializeToString()
    assert not (tmp_path / "out.so").exists()
    assert [kernel.reason for kernel in made.report.kernels] == ["SLOWER at rows=1: 0.50x"] * 2
    assert "0 of 2 kernels kept" in str(made.report)


@pytest.mark.parametrize(
    ("keep", "ratio", "kept"), [("faster", 2, 2), ("faster", 1, 0), ("not-slower", 1, 2), ("all", 0.5, 2)]
)
def test_what_is_kept_follows_from_the_verdict(keep, ratio, kept, tmp_path, monkeypatch):
    monkeypatch.setattr(OnnxBench, "compare", timed_as(ratio))
    assert len(quick(twice(), tmp_path, keep=keep).report.kept) == kept


@pytest.fixture
def planted(monkeypatch):
    """Changes the first kernel of every plan."""

    def plant(change):
        planned = codegen_plan.plan

        def changed(*arguments):
            plan = planned(*arguments)
            return dataclasses.replace(plan, kernels=(change(plan.kernels[0]), *plan.kernels[1:]))

        monkeypatch.setattr(codegen_plan, "plan", changed)

    return plant


def test_a_wrong_kernel_is_dropped_and_its_cell_is_told(planted, tmp_path):
    planted(lambda kernel: spoilt(kernel, WRONG))
    made = quick(twice(), tmp_path)
    wrong, right = made.report.kernels
    assert (wrong.kept, wrong.verdict, right.kept) == (False, None, True)
    assert "wrong at a[0, 0]" in wrong.reason or "wrong at c[0, 0]" in wrong.reason
    assert "want " in wrong.reason and "(float64), allowed " in wrong.reason
    assert wrong.name not in {node.op_type for node in made.model.graph.node}
    assert "wrong at " in made.source(wrong.name).partition("*/")[0]
    feeds = arrays_for(twice())
    assert_close(runs.run(made.session(), feeds), answers(tmp_path / "model.onnx", feeds))


def test_a_kernel_that_does_not_build_is_dropped_and_the_rest_goes_on(planted, tmp_path):
    planted(lambda kernel: dataclasses.replace(kernel, text=kernel.text + "\nthis is not C;\n"))
    broken, right = quick(twice(), tmp_path).report.kernels
    assert (broken.kept, broken.error, right.kept) == (False, None, True)
    assert broken.reason.startswith("does not build: ")
    assert "error" in broken.reason


def test_a_place_that_the_model_refuses_is_told_and_the_others_go_on(tmp_path, monkeypatch):
    refusals = write_back.refusals
    calls = []

    def refusing(model, fused, folder):
        calls.append(1)
        ours = {0: "it does not please"} if len(calls) == 1 else {}  # later ones ask of what is put back
        return {**ours, **refusals(model, fused, folder)}

    monkeypatch.setattr(write_back, "refusals", refusing)
    made = quick(twice(), tmp_path)
    assert calls
    assert [kernel.places for kernel in made.report.kernels] == [1, 1]
    left = next(each for each in made.report.not_fused if each.reason == "it does not please")
    assert left.nodes == ("Tanh#0", "Mul#1", "Sigmoid#2")
    feeds = arrays_for(twice())
    assert_close(runs.run(made.session(), feeds), answers(tmp_path / "model.onnx", feeds))


def test_a_part_that_cannot_be_timed_is_kept_on_demand_alone(tmp_path, monkeypatch):
    def failing(*_):
        raise ModelError("this part does not run")

    monkeypatch.setattr(OnnxBench, "compare", failing)
    kept = quick(twice(), tmp_path).report.kernels
    assert all(kernel.kept and kernel.reason == "not timed: this part does not run" for kernel in kept)
    assert not any(kernel.kept for kernel in quick(twice(), tmp_path, keep="not-slower").report.kernels)


def test_kernels_are_chosen_by_name(tmp_path):
    names = [kernel.name for kernel in quick(twice(), tmp_path).report.kernels]
    only, drop = quick(twice(), tmp_path, only=names[:1]), quick(twice(), tmp_path, drop=names[:1])
    assert [kernel.name for kernel in only.report.kernels] == names[:1]
    assert [kernel.name for kernel in drop.report.kernels] == names[1:]
    assert [each.nodes for each in only.report.not_fused if each.reason == "left out as asked"] == [("Exp#8", "Neg#9")]
    for wishes in ({"only": ["nonsense"]}, {"drop": ["nonsense"]}):
        with pytest.raises(InputError, match=f"no kernel nonsense; its kernels are: {', '.join(names)}"):
            quick(twice(), tmp_path, **wishes)


def test_sizes_are_those_asked_for_and_small_ones_to_check_with(tmp_path):
    made = quick(plain(), tmp_path, dims={"rows": 1000})
    assert made.report.kernels[0].bytes == 2 * 4 * 6000
    assert told(made) == (
        "x f32[1000, 6]: made up, standard normal",
        "kernels are checked on smaller ones, of rows=64",
    )


def test_arrays_of_a_user_are_what_is_checked_and_timed(tmp_path):
    np.savez(tmp_path / "mine.npz", x=np.full((17, 6), 3, np.float32))
    made = quick(plain(), tmp_path, inputs=str(tmp_path / "mine.npz"))
    assert told(made) == ("x f32[17, 6]: from mine.npz",)
    assert made.report.kernels[0].bytes == 2 * 4 * 17 * 6
    certificate = made.candidates[0].certificate
    assert certificate.captured and not certificate.made_up
    assert next(each for each in certificate.outcomes if each.captured).cells == 17 * 6


def test_activations_that_are_too_large_are_not_checked_and_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_candidates, "MOST_CELLS", 100)
    np.savez(tmp_path / "mine.npz", x=np.full((17, 6), 3, np.float32))
    made = quick(plain(), tmp_path, inputs=tmp_path / "mine.npz")
    one = made.candidates[0]
    assert one.certificate.ok and not one.certificate.captured
    assert "too large to be among the cases" in made.report.inputs[1]
    assert "too large to be among the cases" in " ".join(made.source(one.planned.operator).split())


def test_a_fused_model_is_fused_again(tmp_path):
    quick(twice(), tmp_path).save(tmp_path / "once.onnx")
    again = optimize(tmp_path / "once.onnx", QUICK)
    feeds = arrays_for(twice())
    assert_close(runs.run(again.session(), feeds), answers(tmp_path / "model.onnx", feeds))


def test_the_same_model_gives_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(OnnxBench, "compare", timed_as(2))
    one, other = (quick(twice(), tmp_path) for _ in "ab")
    assert one.model.SerializeToString(deterministic=True) == other.model.SerializeToString(deterministic=True)
    assert one.library.read_bytes() == other.library.read_bytes()


def test_nothing_is_left_in_the_folder_for_temporary_files(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    made = quick(plain(), tmp_path)
    made.save(tmp_path / "out.onnx")
    del made
    assert list((tmp_path / "temporary").iterdir()) == []


def test_the_public_function_takes_wishes_by_name(tmp_path):
    made = noyau.optimize(str(written(plain(), tmp_path)), keep="all", budget_s=0.01, dims={"rows": 3})
    assert told(made) == ("x f32[3, 6]: made up, standard normal",)
    assert len(made.report.kept) == 1


def test_each_step_is_said(tmp_path):
    said: list[str] = []
    optimize(written(plain(), tmp_path), QUICK, said.append)
    words = [line.split()[0].rstrip(":,") for line in said]
    rounds = ["timing", *["running", "timing"] * 2]
    assert words == ["reading", "compiling", "running", "checking", *rounds, "timing"]
    assert ", 1 of 1: tanh_sigmoid_" in said[3]
    assert said[4].startswith("timing at rows=1, 1 of 1: tanh_sigmoid_")
