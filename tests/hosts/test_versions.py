"""Files as every onnxruntime takes them: .ci/versions runs this in each of its environments."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose
from onnx import TensorProto, helper

from noyau.hosts.onnxruntime.function_bodies import FusedNode
from noyau.hosts.onnxruntime.write_back import write_back
from tests.hosts.kernels import STAND_INS, Arrays, build_library, kernel_text, model_of
from tests.small_models import chain, llama, value
from tests.small_models import model_of as small

pytestmark = pytest.mark.long

MARK = 1000.0
ROOT = Path(__file__).resolve().parents[2]

CHILD = """
import json, sys
import numpy as np
import onnxruntime

def session(model, library, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    if library:
        options.register_custom_ops_library(library)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

found = {"version": onnxruntime.__version__}
for case in json.load(open("cases.json")):
    feeds = dict(np.load(case["feeds"]))
    try:
        opened = session(case["model"], case["library"], case["threads"])
        outputs = opened.run(None, feeds)
        for _ in range(case["repeats"]):
            assert all(np.array_equal(a, b) for a, b in zip(outputs, opened.run(None, feeds)))
        np.savez(case["results"], **dict(zip([each.name for each in opened.get_outputs()], outputs)))
    except Exception as error:
        found[case["results"]] = str(error)
json.dump(found, open("found.json", "w"))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models, libraries and arrays, made here once."""
    folder = tmp_path_factory.mktemp("files")
    texts = {f"{name}_1f": kernel_text(each.text, f"{name}_1f") for name, each in STAND_INS.items()}
    texts["scale_add_2e"] = kernel_text(STAND_INS["scale_add"].text, "scale_add_2e", MARK)
    build_library(texts, folder / "kernels.so")
    build_library({"scale_add_2e": texts["scale_add_2e"]}, folder / "lesser.so", simulated_level=1)
    for name, model in models().items():
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    for name in models():
        for size in (0, 3, 5000):
            np.savez(folder / f"{name}_{size}.npz", **arrays(name, size))
    misfit = {**arrays("scale_add", 3), "w": np.ones(7, np.float32)}
    np.savez(folder / "misfit.npz", **misfit)
    np.savez(folder / "outside.npz", **{**arrays("take", 3), "ids": np.array([1, 2, 50])})
    return folder


def models() -> dict[str, onnx.ModelProto]:
    found = {name: each.fused(f"{name}_1f") for name, each in STAND_INS.items() if name != "mixed"}
    found["marked"] = STAND_INS["scale_add"].fused("scale_add_2e")
    found["another"] = STAND_INS["scale_add"].fused("scale_add_3d")
    return {**found, "mixed": mixed(), "extra": extra()}


def mixed() -> onnx.ModelProto:
    """The kernel of four types between casts, because an old onnxruntime takes no bfloat16 from Python."""
    fused = STAND_INS["mixed"].fused("mixed_1f")
    inputs, outputs = STAND_INS["mixed"].types()
    inputs[1] = helper.make_tensor_value_info("b32", TensorProto.FLOAT, ["n"])
    outputs[1] = helper.make_tensor_value_info("minus_b32", TensorProto.FLOAT, ["n"])
    nodes = [
        helper.make_node("Cast", ["b32"], ["b"], to=TensorProto.BFLOAT16),
        fused.graph.node[0],
        helper.make_node("Cast", ["minus_b"], ["minus_b32"], to=TensorProto.FLOAT),
    ]
    return model_of(nodes, inputs, outputs, functions=list(fused.functions))


def extra() -> onnx.ModelProto:
    """A part whose body reads a shape that its kernel does not."""
    nodes = [helper.make_node("Shape", ["like"], ["shape"]), *STAND_INS["scale_add"].nodes]
    nodes[-1] = helper.make_node("Add", ["p", "s"], ["sum"])
    nodes.append(helper.make_node("Reshape", ["sum", "shape"], ["out"]))
    inputs, outputs = STAND_INS["scale_add"].types()
    inputs.append(helper.make_tensor_value_info("like", TensorProto.FLOAT, ["r", "c"]))
    model = write_back(
        model_of(nodes, inputs, outputs), [FusedNode("scale_add_2e", (1, 2, 3), ("x", "w", "s"), ("out",))]
    )
    assert len(model.graph.node[1].input) == 4
    return model


def arrays(name: str, size: int) -> Arrays:
    stand_in = STAND_INS.get(name, STAND_INS["scale_add"])
    feeds = stand_in.feeds(np.random.default_rng(size), size)
    if name == "mixed":
        feeds["b32"] = feeds.pop("b").astype(np.float32)
    if name == "extra":
        feeds["like"] = feeds["x"]
    return feeds


def wanted(name: str, feeds: Arrays) -> Arrays:
    """The results in NumPy."""
    if name == "take":
        return {"out": feeds["table"][feeds["ids"]]}
    if name == "total":
        return {"out": feeds["x"].sum(dtype=np.float64)}
    if name == "softmax":
        powers = np.exp(feeds["x"] - feeds["x"].max(-1, keepdims=True, initial=-np.inf))
        return {"out": powers / powers.sum(-1, keepdims=True)}
    if name == "mixed":
        chosen = np.where(feeds["m"], -feeds["k"], feeds["k"])
        return {"minus_a": -feeds["a"], "minus_b32": -feeds["b32"], "chosen": chosen, "not_m": ~feeds["m"]}
    return {"out": feeds["x"] * feeds["w"] + feeds["s"]}


def run_cases(files: Path, cases: list[dict[str, object]]) -> dict[str, str]:
    """Run the cases in one process, without noyau; the version, and the errors by result file."""
    (files / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    subprocess.run([sys.executable, "-c", CHILD], cwd=files, check=True, timeout=300)
    return json.loads((files / "found.json").read_text(encoding="utf-8"))


def case(model: str, feeds: str, library: str | None, threads: int = 1, repeats: int = 0) -> dict[str, object]:
    results = f"{model}-{feeds}-{library}-{threads}.npz"
    return {
        "model": f"{model}.onnx",
        "feeds": f"{feeds}.npz",
        "library": library and f"./{library}.so",
        "threads": threads,
        "repeats": repeats,
        "results": results,
    }


def test_every_model_is_right_with_its_library_and_without(files: Path) -> None:
    cases = {
        (name, size, library, threads): case(name, f"{name}_{size}", library, threads, repeats=20)
        for name in models()
        for size in (0, 3, 5000)
        for library in (None, "kernels", "lesser")
        for threads in (1, 2)
    }
    errors = run_cases(files, list(cases.values()))
    assert list(errors) == ["version"]
    for (name, size, library, _), each in cases.items():
        mark = MARK if name in ("marked", "extra") and library == "kernels" else 0.0
        found = dict(np.load(files / str(each["results"])))
        for output, array in wanted(name, arrays(name, size)).items():
            tolerance = 1e-2 if name == "total" else 1e-3 if mark else 1e-6
            assert_allclose(found[output], array + mark if mark else array, rtol=1e-5, atol=tolerance)


def test_errors_are_named(files: Path) -> None:
    cases = [case("scale_add", "misfit", "kernels"), case("take", "outside", "kernels")]
    errors = run_cases(files, cases)
    assert "noyau::scale_add_1f: input 1 of shape [7] does not fit" in errors[str(cases[0]["results"])]
    assert "noyau::take_1f: an index is out of bounds" in errors[str(cases[1]["results"])]


@pytest.mark.parametrize("kind", ["external data", "llama"])
def test_the_whole_job(kind: str, tmp_path: Path) -> None:
    """With every kernel kept, the model gives what it gave; its weights stay in their file."""
    (tmp_path / "in").mkdir()
    source = tmp_path / "in" / "model.onnx"
    if kind == "llama":
        source.write_bytes(llama("torchscript").read_bytes())
        feeds = {"input_ids": np.arange(10).reshape(2, 5), "attention_mask": np.ones((2, 5), np.int64)}
    else:
        source.write_bytes(with_weights_elsewhere(source.parent).SerializeToString())
        feeds = {"x": np.ones((2, 6), np.float32)}
    fused, options = tmp_path / "in" / "fused.onnx", ["--keep", "all", "--json", tmp_path / "record.json"]
    command = [sys.executable, "-m", "noyau", "optimize", source, "-o", fused, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    kernels = json.loads((tmp_path / "record.json").read_text())["kernels"]
    assert kernels
    assert all(kernel["kept"] and kernel["verdict"] for kernel in kernels)
    np.savez(tmp_path / "feeds.npz", **feeds)
    cases = [case("in/model", "feeds", None), case("in/fused", "feeds", "in/fused"), case("in/fused", "feeds", None)]
    for number, each in enumerate(cases):
        each["results"] = f"{number}.npz"
    assert list(run_cases(tmp_path, cases)) == ["version"]
    before, *after = (dict(np.load(tmp_path / str(each["results"]))) for each in cases)
    for found in after:
        for name, array in before.items():
            assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)


def with_weights_elsewhere(folder: Path) -> onnx.ModelProto:
    """x times a weight in a file of its own, and what becomes a kernel; in an operator set that every release has."""
    (folder / "w.data").write_bytes(np.arange(12, dtype=np.float32).tobytes())
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 6], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="w.data")
    nodes = [helper.make_node("Mul", ["x", "w"], ["a"]), *chain("a", "y")]
    model = small(nodes, [value("x", (2, 6))], [value("y", (2, 6))], [weight], opset=17)
    model.ir_version = 8
    return model
