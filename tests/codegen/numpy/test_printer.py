"""Graphs as NumPy source: what the text gives is what the interpreter gives, in the dtype and in float64."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Mapping

import numpy as np
import pytest

from noyau import functions
from noyau.codegen.numpy.printer import NumpyFunction, friendly, head_text, write
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.hosts.onnxruntime.source_model import open_model
from noyau.ir.dims import Dim
from noyau.ir.graph import Contract, Graph, Input, Iota, Lookup, Map, Node, Opaque, Scatter, View
from noyau.ir.graph_interpreter import evaluate
from tests.codegen.kernels import GOLDEN, MORE
from tests.judged import Judge
from tests.random_graphs import generate
from tests.small_models import llama

BATCH, BATCHES = 100, 4  # half of them by hand
GRAPHS = {name: graph for name, (graph, _) in {**GOLDEN, **MORE}.items()}
SIZES = {"rows": 5, "n": 33, "s": 7, "b": 2, "m": 4, "words": 3, "a": 6, "c": 4, "heads": 2}


def run(written: NumpyFunction, arrays: Mapping[str, np.ndarray], *, wide: bool = False) -> tuple[np.ndarray, ...]:
    """The results of the text, executed as it stands."""
    scope = {"np": np, **{name: getattr(functions, name) for name in written.imports}}
    exec(compile(written.text, "path.py", "exec"), scope)
    given = [arrays[name] for name in written.inputs]
    if wide:
        given = [array.astype(np.float64) if array.dtype.kind in "fV" else array for array in given]
    with functions.widen_floats(wide), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = scope[written.name](*given)
    return tuple(map(np.asarray, made if isinstance(made, tuple) else (made,)))


def fault(graph: Graph, arrays: Mapping[str, np.ndarray]) -> str | None:
    """What is wrong with the text of a graph on some inputs, or None."""
    written, judge = write(graph, "path"), Judge(graph, arrays)
    for output, got in zip(graph.outputs, run(written, arrays), strict=True):
        if reason := judge.wrong(output, got):
            return f"{reason}\n{written.text}"
    truth = evaluate(graph, arrays, wide=True)
    for output, got in zip(graph.outputs, run(written, arrays, wide=True), strict=True):
        want = truth[output]
        alike = got.dtype == want.dtype and got.shape == want.shape
        largest = np.nanmax(np.abs(want[np.isfinite(want)].astype(float)), initial=1)
        if not alike or not np.allclose(got.astype(float), want.astype(float), 1e-9, 1e-12 * largest, equal_nan=True):
            return f"{output} in float64: {got.dtype}{list(got.shape)}, {got}\nnot {want}\n{written.text}"
    return None


@pytest.mark.parametrize(
    "start",
    [pytest.param(at * BATCH, marks=pytest.mark.long if 2 * at >= BATCHES else ()) for at in range(BATCHES)],
)
def test_random_graphs(start):
    for seed in range(start, start + BATCH):
        case = generate(seed)
        found = fault(case.graph, case.inputs)
        assert found is None, f"seed {seed}: {found}"


def arrays_of(graph: Graph) -> dict[str, np.ndarray]:
    noise = np.random.default_rng(0)
    made = {}
    for node in graph.inputs:
        shape = [int(dim.evaluate(SIZES)) for dim in node.shape]
        drawn = noise.standard_normal(shape) if node.dtype.is_float else noise.integers(0, 3, shape)
        made[node.output] = np.asarray(drawn).astype(node.dtype.numpy)
    return made


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_of_kernels(name):
    assert fault(GRAPHS[name], arrays_of(GRAPHS[name])) is None


COMMITTED = ("log_softmax_kept", "residual_rms_norm", "residual_rms_norm_bf16", "layer_norm", "rotary_f16", "gathered")
COMMITTED += ("padded", "logsumexp", "row_argmax", "running_sum", "masked", "quantise", "cos_sin", "column_sums")


@pytest.mark.parametrize("name", COMMITTED)
def test_the_text_is_that_committed(name, golden):
    golden(f"numpy/{name}.txt", source(write(GRAPHS[name], name)))


def source(written: NumpyFunction) -> str:
    imports = [f"from noyau.functions import {', '.join(written.imports)}"] if written.imports else []
    numpy = ["import numpy as np"] if "np." in written.text else []
    return "\n\n".join([*numpy, *imports, f"\n{written.text}"]).lstrip()


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_every_group_of_a_llama(exporter, golden):
    texts = {}
    for group in open_model(llama(exporter)).cut().groups:
        written = write(group.original, "path")
        texts.setdefault(written.text, written)
        graph = group.original
        sizes = {"batch": 2, "sequence": 5}
        noise = np.random.default_rng(1)
        arrays = {}
        for node in graph.inputs:
            shape = [int(dim.evaluate(sizes)) for dim in node.shape]
            drawn = noise.standard_normal(shape) if node.dtype.is_float else noise.integers(0, 2, shape)
            arrays[node.output] = np.asarray(drawn).astype(node.dtype.numpy)
        assert fault(graph, arrays) is None
    golden(f"numpy/llama_{exporter}.txt", "\n\n".join(source(written) for written in list(texts.values())[:6]))


def test_the_texts_are_clean(tmp_path):
    for seed in range(60):
        (tmp_path / f"g{seed}.py").write_text(source(write(generate(seed).graph, "path")), "ascii")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E,F,W,UP,I", "--ignore", "E501,E741"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_views_are_slices_and_reshapes_and_broadcasts_are_left_to_numpy():
    graph = open_model(llama("dynamo")).cut().groups[3].original
    assert write(graph, "rotate").text == (
        "def rotate(linear, unsqueeze_14, unsqueeze_15):\n"
        "    batch = linear.shape[0]\n"
        "    sequence = linear.shape[1]\n"
        "    view = linear.reshape(batch, sequence, 4, 16)\n"
        "    transpose = view.transpose(0, 2, 1, 3)\n"
        "    mul_137 = transpose * unsqueeze_14\n"
        "    slice_4 = transpose[..., :8]\n"
        "    slice_5 = transpose[..., 8:]\n"
        "    neg = -slice_5\n"
        "    cat_1 = np.concatenate([neg, slice_4], 3)\n"
        "    mul_154 = cat_1 * unsqueeze_15\n"
        "    add_210 = mul_137 + mul_154\n"
        "    return add_210\n"
    )


X = Node("x", Input(), (), DType.F32, (Dim.of("n"), Dim.of(4)))


def test_products_are_einsums_also_of_short_floats():
    for dtype in (DType.F32, DType.BF16):
        a = Node("a", Input(), (), dtype, (Dim.of("n"), Dim.of(3)))
        b = Node("b", Input(), (), dtype, (Dim.of(3), Dim.of("m")))
        y = Node("y", Contract("ij,jk->ik"), ("a", "b"), dtype, (Dim.of("n"), Dim.of("m")))
        graph = Graph((a, b, y), ("y",))
        assert 'np.einsum("ij,jk->ik", ' in write(graph, "f").text
        assert fault(graph, arrays_of(graph)) is None


@pytest.mark.parametrize("monoid", [None, "sum", "max"])
def test_scatters_are_statements(monoid):
    at = Node("at", Input(), (), DType.I64, (Dim.of(3),))
    new = Node("new", Input(), (), DType.F32, (Dim.of(3), Dim.of(4)))
    kind = Scatter((Lookup(1, (Dim.of("#0"),)), Dim.of("#1")), monoid)
    graph = Graph((X, at, new, Node("y", kind, ("x", "at", "new"), DType.F32, X.shape)), ("y",))
    arrays = {**arrays_of(graph), "at": np.array([4, 0, 2])}
    assert fault(graph, arrays) is None


def test_inputs_come_in_the_order_asked_for_and_sizes_from_the_first_that_has_them():
    w = Node("w", Input(), (), DType.F32, (Dim.of(4),))
    sizes = Node("s", Iota(Dim.of("n")), (), DType.F32, ())
    spread = Node("s~0", View(()), ("s",), DType.F32, X.shape)
    y = Node("y", Map("multiply"), ("x", "s~0"), DType.F32, X.shape)
    written = write(Graph((w, X, sizes, spread, y), ("y",)), "f", ["x", "w"])
    assert written.text == "def f(x, w):\n    n = x.shape[0]\n    y = x * n\n    return y\n"
    assert (dict(written.inputs), dict(written.outputs), dict(written.sizes)) == (
        {"x": "x", "w": "w"},
        {"y": "y"},
        {"n": "n"},
    )


def test_what_noyau_does_not_look_into_has_no_text():
    y = Node("y", Opaque("MatMul"), ("x",), DType.F32, X.shape)
    with pytest.raises(UnsupportedError, match="y is made by MatMul, which has no text in NumPy: end the path there"):
        write(Graph((X, y), ("y",)), "f")


def test_a_size_that_no_input_tells_is_refused():
    y = Node("y", Iota(Dim.of("#0")), (), DType.I64, (Dim.of("k"),))
    with pytest.raises(UnsupportedError, match="the size k does not follow from what the path reads"):
        write(Graph((X, y), ("y",)), "f")


@pytest.mark.parametrize(
    "name", ['x"); import os #', "a\nb", "np", "cast", "\u00e9t\u00e9", "", "def", "path", "1", "sum"]
)
def test_hostile_names_are_only_names(name):
    x = Node(name, Input(), (), DType.F32, (Dim.of("n"),))
    graph = Graph((x, Node(f"{name}'", Map("exp"), (name,), DType.F32, x.shape)), (f"{name}'",))
    written = write(graph, "path")
    assert written.text.isascii()
    assert written.text.count("\n") == 3
    assert np.allclose(run(written, {name: np.zeros(3, np.float32)})[0], 1)


def test_names_of_a_model_keep_their_last_parts():
    assert friendly("/model/layers.3/self_attn/Mul_output_0") == "self_attn_Mul"
    assert friendly("/model/layers.3/Add_output_0~2") == "layers_3_Add~2"
    assert friendly("model.norm.weight") == "norm_weight"
    assert friendly("x") == "x"


def test_many_parameters_stand_one_a_line():
    assert head_text("f", ["a", "b"]) == "def f(a, b):"
    assert head_text("f", ["a" * 60, "b" * 60]).splitlines()[1] == f"    {'a' * 60},"
