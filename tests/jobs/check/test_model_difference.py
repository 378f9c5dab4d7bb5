"""Two models, value by value."""

from __future__ import annotations

import io
import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rich.console import Console

import noyau
from noyau.errors import CheckError, InputError, ModelError, OutputError
from noyau.jobs.check.model_difference import model_difference
from noyau.jobs.cli import main
from tests.control_flow import arrays, control_flow
from tests.jobs.extract.files import normed
from tests.small_models import INT64, NODE, chain, llama, model_of, plain, twice, value, written


def changed(model: onnx.ModelProto, name: str, by: float) -> onnx.ModelProto:
    """The model with a tensor multiplied."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    tensor = next(each for each in made.graph.initializer if each.name == name)
    array = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array((array * by).astype(array.dtype), name))
    return made


@pytest.fixture
def both(tmp_path):
    """A model, and one of which the last norm has another weight."""
    return written(normed(), tmp_path, "a.onnx"), written(changed(normed(), "w2", 1.01), tmp_path, "b.onnx")


def printed(found, width: int = 100) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(found)
    return file.getvalue()


def test_a_model_is_like_itself_at_every_value(both):
    found = model_difference(both[0], both[0])
    assert found.ok
    found.raise_if_bad()
    assert [run.sizes for run in found.runs] == ["rows=2", "rows=1"]
    assert [value.name for value in found.runs[0].values][:3] == ["s", "n_p", "n_m"]
    assert [value.name for value in found.runs[0].values if value.is_output] == ["y"]
    assert "alike: at most " in printed(found)


def test_the_first_value_that_differs_is_named(both):
    found = model_difference(*both, dims={"rows": [4]})
    (run,) = found.runs
    assert (run.first.name, run.first.operator, found.ok) == ("n2", "Mul#14", False)
    assert [value.name for value in run.values if not value.ok] == ["n2", "y"]
    with pytest.raises(CheckError, match=r"b.onnx differs from a.onnx at rows=4: n2, made by Mul#14, is wrong at n2\["):
        found.raise_if_bad()
    told = printed(found)
    assert "b.onnx against a.onnx at rows=4: 16 common values, 1 output among them" in told
    assert "the first that differs: n2, made by Mul#14" in told
    assert "after it: y" in told
    assert "alike" not in told


def test_a_change_within_rounding_is_none(tmp_path):
    one = model_of([NODE("Add", ["x", "y"], ["t"]), NODE("Add", ["t", "z"], ["r"])], *_three())
    other = model_of([NODE("Add", ["y", "z"], ["u"]), NODE("Add", ["x", "u"], ["r"])], *_three())
    found = model_difference(written(one, tmp_path, "a.onnx"), written(other, tmp_path, "b.onnx"))
    assert found.ok
    assert [value.name for value in found.runs[0].values] == ["r"]


def _three():
    return [value(name, (50,)) for name in "xyz"], [value("r", (50,))]


def test_scales_of_a_resize_are_not_moved_by_a_rounding_for_its_extents_follow_from_them(tmp_path):
    """1.9999999 for 2 gave 7 rows for 8, and the comparison ended with NumPy's error."""
    text = """<ir_version: 8, opset_import: ["": 13]> g (float[n, 1, 4, 4] x) => (float[n, 1, 8, 8] y) {
        a = Exp(x)  r = Resize <mode="linear"> (a, roi, scales)  y = Mul(r, r) }"""
    model = onnx.parser.parse_model(text)
    for name, cells in (("roi", []), ("scales", [1, 1, 2, 2])):
        model.graph.initializer.append(numpy_helper.from_array(np.array(cells, np.float32), name))
    path = written(model, tmp_path)
    difference = model_difference(path, path)
    assert difference.ok and [each.name for each in difference.runs[0].values] == ["a", "r", "y"]


def test_texts_of_a_classifier_do_not_keep_its_numbers_from_a_comparison(tmp_path):
    text = """<ir_version: 8, opset_import: ["": 15, "ai.onnx.ml": 3]> g (float[n, 3] x)
        => (string[m] label, float[n, 3] y) {
        a = Softmax (x)  i = ArgMax <axis = 1, keepdims = 0> (a)  y = Sqrt (a)
        label = ai.onnx.ml.ArrayFeatureExtractor (names, i) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.helper.make_tensor("names", onnx.TensorProto.STRING, [3], ["a", "b", "c"]))
    path = written(model, tmp_path)
    assert [each.name for each in model_difference(path, path).runs[0].values] == ["a", "i", "y"]


def test_operators_of_onnxruntime_are_run_by_it_where_models_are_compared(tmp_path):
    """onnx's own evaluator knows none of them, and a model that onnxruntime's tools had fused was refused."""
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (float[n, 8] x) => (float[n, 8] y) {
        a = com.microsoft.FusedMatMul <alpha = 0.5, transB = 1> (x, w)  b = Exp(a)  y = Mul (b, a) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"))
    one = written(model, tmp_path, "a.onnx")
    assert model_difference(one, one).ok
    model.graph.node[0].attribute[0].f = 0.75
    assert model_difference(one, written(model, tmp_path, "b.onnx")).runs[0].first.name == "a"


def test_sizes_that_must_add_up_are_found(tmp_path):
    """A model with a cache ended with onnxruntime's error at 7 + 7 = 7, and needed sizes of the user."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[b, past] p, float[b, new] x, float[b, total] mask)
        => (float[b, total] y) { a = Concat <axis = 1> (p, x)  y = Mul (a, mask) }"""
    path = written(onnx.parser.parse_model(text), tmp_path)
    difference = model_difference(path, path)
    assert difference.ok
    assert [each.sizes for each in difference.runs] == ["b=2, past=14, new=7, total=21", "b=1, past=1, new=1, total=1"]
    assert len(difference.notes) == 6
    with pytest.raises(InputError, match=r"does not run.* these were tried in vain: "):
        model_difference(path, path, dims={"past": 3, "total": 3})


def test_models_without_operators_compare_by_their_tensors(tmp_path):
    """A model against its copy had no value in common, for only results of operators were compared."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 4] x, float[3] w)
        <float[3] w = {1, 2, 3}> { }"""
    model = onnx.parser.parse_model(text)
    path = written(model, tmp_path, "a.onnx")
    assert model_difference(path, path).ok
    model.graph.initializer[0].float_data[1] = 5
    difference = model_difference(path, written(model, tmp_path, "b.onnx"))
    assert difference.runs[0].first.name == "w"
    assert "made by no operator, is wrong at w[1]" in printed(difference, 400)


def test_other_shapes_and_integers_differ(tmp_path):
    def model(cast: bool, by: int) -> onnx.ModelProto:
        nodes = [NODE("Add", ["i", "k"], ["j"]), NODE("Expand", ["j", "s"], ["y"])]
        tensors = {"k": np.array(by), "s": np.array([2, 1] if cast else [1])}
        ends = [value("i", (3,), INT64)], [value("y", None, INT64)]
        return model_of(nodes, *ends, [numpy_helper.from_array(array, name) for name, array in tensors.items()])

    one = written(model(False, 1), tmp_path, "a.onnx")
    number, shape = written(model(False, 2), tmp_path, "b.onnx"), written(model(True, 1), tmp_path, "c.onnx")
    assert model_difference(one, number).runs[0].first.name == "j"
    found = model_difference(one, shape)
    assert found.runs[0].first.name == "y"
    assert "is i64[2, 3], not i64[3]; for i: i64[3] (" in str(found.runs[0].first)


def test_outputs_that_are_alike_beside_values_that_are_not_are_told(tmp_path):
    def model(by: float) -> onnx.ModelProto:
        tensors = [numpy_helper.from_array(np.float32(number), name) for name, number in (("k", by), ("l", 4 / by))]
        nodes = [NODE("Mul", ["x", "k"], ["t"]), NODE("Mul", ["t", "l"], ["y"])]
        return model_of(nodes, [value("x", (3,))], [value("y", (3,))], tensors)

    found = model_difference(written(model(1), tmp_path, "a.onnx"), written(model(2), tmp_path, "b.onnx"))
    assert not found.ok
    assert found.runs[0].first.name == "t"
    assert "\n  its outputs are alike\n" in printed(found)


def test_a_fused_model_is_like_its_original_with_its_kernels(tmp_path):
    path = written(twice(), tmp_path, "a.onnx")
    noyau.optimize(path, keep="all", budget_s=0.01, dims={"rows": 3}).save(tmp_path / "f.onnx")
    found = model_difference(path, tmp_path / "f.onnx")
    assert found.ok
    assert {value.name for value in found.runs[0].values} == {"a", "b", "c", "d", "y"}
    assert not any("library" in note for note in found.notes)
    (tmp_path / "f.so").unlink()
    alone = model_difference(path, tmp_path / "f.onnx")
    assert alone.ok
    assert alone.notes[-1] == "f.onnx has kernels, and no library beside it: what they replaced runs"


def test_a_value_of_many_bytes_is_not_made_unasked(tmp_path):
    path = written(model_of([NODE("Neg", ["x"], ["y"])], [value("x", [4, 1 << 29])], [value("y", None)]), tmp_path)
    with pytest.raises(InputError, match=r"^at the model's only sizes a value takes 8.0 GiB, .* give --inputs F.npz"):
        model_difference(path, path)


def test_arrays_of_a_user(both, tmp_path):
    np.savez(tmp_path / "mine.npz", a=np.ones((3, 6), np.float32), r=np.zeros((3, 6), np.float32))
    found = model_difference(*both, inputs=tmp_path / "mine.npz")
    assert [run.sizes for run in found.runs] == ["rows=3"]
    assert found.notes == ("a f32[3, 6]: from mine.npz", "r f32[3, 6]: from mine.npz")
    with pytest.raises(InputError, match="gives every size: leave out --dim rows=N, or the arrays"):
        model_difference(*both, inputs=tmp_path / "mine.npz", dims={"rows": 3})


def test_models_of_two_kinds_do_not_compare(both, tmp_path):
    other = written(plain(), tmp_path, "other.onnx")
    with pytest.raises(
        InputError, match=r"a.onnx and other.onnx have no value in common|only models of one kind compare"
    ):
        model_difference(both[0], other)
    renamed = model_of(chain("x", "y"), [value("x", ("rows", 6)), value("more")], [value("y", ("rows", 6))])
    with pytest.raises(
        InputError, match=r"takes x f32 of rank 2, and more.onnx takes x f32 of rank 2, more f32 of rank 1"
    ):
        model_difference(other, written(renamed, tmp_path, "more.onnx"))


def test_what_is_no_model_is_refused(both, tmp_path):
    (tmp_path / "no.onnx").write_bytes(b"no")
    with pytest.raises(ModelError):
        model_difference(both[0], tmp_path / "no.onnx")


def test_the_command(both, tmp_path, capsys):
    one, other = map(str, both)
    assert main(["check", one, "--against", one]) == 0
    assert main(["check", one, "--against", other, "--dim", "rows=4", "--json", str(tmp_path / "r.json")]) == 1
    record = json.loads((tmp_path / "r.json").read_text())
    assert (record["schema_version"], record["ok"]) == (1, False)
    assert record["runs"][0]["first"] == "n2"
    assert len(record["runs"][0]["values"]) == 16
    capsys.readouterr()
    assert main(["check", one]) == 2
    assert "--against B.onnx" in capsys.readouterr().err


def test_quiet_prints_one_line(both, capsys):
    """It ended with a traceback: a module that does not exist."""
    one, other = map(str, both)
    assert main(["check", one, "--against", one, "--quiet"]) == 0
    assert capsys.readouterr().out == "a.onnx is like a.onnx\n"
    assert main(["check", one, "--against", other, "--quiet"]) == 1
    told = capsys.readouterr().out
    assert told.count("\n") == 1 and " differs from " in told and " at " in told


def test_a_record_that_cannot_be_written_is_one_line(both, tmp_path):
    with pytest.raises(OutputError, match="cannot be written"):
        model_difference(both[0], both[0]).write(tmp_path / "no" / "r.json")


def test_the_exporters_llamas_have_their_own_values(capsys):
    assert main(["check", str(llama("dynamo")), "--against", str(llama("torchscript"))]) == 0
    assert "1 common value, 1 output among them" in " ".join(capsys.readouterr().out.split())


def test_values_of_bodies_are_compared_and_the_first_to_differ_is_in_one(tmp_path):
    model, other = control_flow(), control_flow()
    loop = next(node for node in other.graph.node if node.op_type == "Loop")
    next(node for node in loop.attribute[0].g.node if node.op_type == "Sigmoid").op_type = "Tanh"
    other.graph.node.insert(0, NODE("Identity", ["x"], ["same"]))  # the nodes stand at other positions
    np.savez(tmp_path / "f.npz", **arrays(4, True, 3))
    one, file = written(model, tmp_path, "a.onnx"), tmp_path / "f.npz"
    found = model_difference(one, written(other, tmp_path, "b.onnx"), inputs=file)
    (run,) = found.runs
    names = [value.name for value in run.values]
    assert (run.first.name, run.first.operator) == ("Loop_4/body/r2", "Loop_4/body/Sigmoid#4")
    assert names.index("Loop_4/body/If_5/then_branch/a") < names.index("Loop_4/body/h2") < names.index("z")
    assert not any("else_branch" in name for name in names) and sum(value.is_output for value in run.values) == 6
    assert "not compared: If_1/else_branch does not run with these inputs" in found.notes
