"""Inputs that are made up obey the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import noyau.jobs.demo.models
from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.frontends.onnx import import_model
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Contract, Iota, Opaque, Reduce, Scan, Select, View
from noyau.ir.graph_interpreter import evaluate
from noyau.verify.inputs import make_inputs
from tests.jobs.check.sketch import Sketch

MODELS = Path(noyau.jobs.demo.models.__file__).parent
SIZES = {"b": 3, "s": 40}


def made(graph, sizes=SIZES, seed=0, **options):
    """Inputs made up, which the graph must accept."""
    inputs = make_inputs(graph, sizes, np.random.default_rng(seed), **options)
    if not options:
        evaluate(graph, inputs.arrays, sizes=sizes)
    return inputs


def test_floats_are_normal_and_of_the_shape_that_the_sizes_give():
    sketch = Sketch()
    x = sketch.input("x", DType.F32, "b", Dim.of("s") * 2 + 1, 5)
    inputs = made(sketch.graph(x))
    assert inputs.arrays["x"].shape == (3, 81, 5)
    assert inputs.arrays["x"].dtype == np.float32
    assert abs(inputs.arrays["x"].mean()) < 0.2
    assert 0.8 < inputs.arrays["x"].std() < 1.2
    assert inputs.notes == ("x f32[3, 81, 5]: made up, standard normal",)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F64])
def test_each_float_type_is_made(dtype):
    sketch = Sketch()
    array = made(sketch.graph(sketch.input("x", dtype, "b", "s"))).arrays["x"]
    assert array.dtype == dtype.numpy
    assert len(np.unique(array.astype(np.float64))) > 50


def test_the_same_seed_makes_the_same_inputs():
    sketch = Sketch()
    graph = sketch.graph(sketch.input("x", DType.F32, "s"))
    assert np.array_equal(made(graph, seed=5).arrays["x"], made(graph, seed=5).arrays["x"])
    assert not np.array_equal(made(graph, seed=5).arrays["x"], made(graph, seed=6).arrays["x"])


def test_ids_are_drawn_from_the_whole_table_and_no_further():
    sketch = Sketch()
    sketch.look_up(sketch.input("n", DType.I64, "b", "s"))
    inputs = made(sketch.graph())
    ids = inputs.arrays["n"]
    assert 0 <= ids.min() < 10
    assert 90 <= ids.max() < 100
    assert "drawn from [0, 100), as indices of" in inputs.notes[0]


def test_the_smallest_of_several_tables_bounds_the_ids():
    sketch = Sketch()
    ids = sketch.input("n", DType.I32, "s")
    outputs = sketch.look_up(ids, 100), sketch.look_up(ids, 7)
    assert made(sketch.graph(*outputs)).arrays["n"].max() == 6


def test_ids_are_followed_through_casts_reshapes_and_the_wrap_of_negatives():
    sketch = Sketch()
    ids = sketch.input("n", DType.I32, "b", "s")
    wide = sketch.map("cast", ids, dtype=DType.I64)
    size = sketch.add(Iota(Dim.of(100)), [], DType.I64, ["b", "s"])
    negative = sketch.map("less", wide, sketch.full(0, wide), dtype=DType.BOOL)
    wrapped = sketch.map("where", negative, sketch.map("add", wide, size), wide)
    flat = sketch.add(View((Dim.of("#0") // "s", Dim.of("#0") % "s")), [wrapped], DType.I64, [Dim.of("b") * "s"])
    sketch.look_up(flat)
    ids = made(sketch.graph()).arrays["n"]
    assert ids.min() >= 0
    assert 80 < ids.max() < 100


def test_an_offset_before_the_table_moves_the_range():
    sketch = Sketch()
    ids = sketch.input("n", DType.I64, "b", "s")
    sketch.look_up(sketch.map("add", ids, sketch.full(90, ids)))
    assert made(sketch.graph()).arrays["n"].max() == 9


def test_an_offset_downwards_moves_the_range_up():
    sketch = Sketch()
    ids = sketch.input("n", DType.I64, 1, 1)
    sketch.look_up(sketch.map("subtract", ids, sketch.full(90, ids)))
    assert {made(sketch.graph(), seed=seed).arrays["n"].min() for seed in range(60)} <= set(range(90, 100))


def test_indices_whose_sum_is_an_index_stay_inside_together():
    """Whichever is drawn first leaves room for the offset, though the other is not known yet."""
    sketch = Sketch()
    first, second = sketch.input("n", DType.I64, "b", "s"), sketch.input("m", DType.I64, "b", "s")
    total = sketch.map("add", first, second)
    outputs = sketch.look_up(total), sketch.look_up(sketch.map("add", total, sketch.full(3, total)), 50)
    for seed in range(8):
        arrays = made(sketch.graph(*outputs), seed=seed).arrays
        assert (arrays["n"] + arrays["m"]).max() < 47 and arrays["n"].max() > 20


def test_indices_that_count_down_from_a_constant_stay_inside():
    sketch = Sketch()
    ids = sketch.input("n", DType.I64, "b", "s")
    sketch.look_up(sketch.map("subtract", sketch.full(120, ids), ids))
    assert made(sketch.graph()).arrays["n"].min() >= 21


def test_ids_that_meet_another_input_on_the_way_fit_what_was_made_for_it():
    sketch = Sketch()
    ids, shift = sketch.input("n", DType.I64, "s"), sketch.input("shift", DType.U8, "s")
    sketch.look_up(sketch.map("add", ids, sketch.map("cast", shift, dtype=DType.I64)), extent=300)
    made(sketch.graph())


def test_ids_of_an_empty_table_are_refused():
    sketch = Sketch()
    sketch.look_up(sketch.input("n", DType.I64, "s"), extent=0)
    with pytest.raises(InputError, match=r"n indexes v1, which is empty"):
        make_inputs(sketch.graph(), SIZES, np.random.default_rng(0))
    assert made(sketch.graph(), {"s": 0}).arrays["n"].shape == (0,)


@pytest.mark.parametrize("spelling", ["cast", "compare", "arithmetic"])
def test_masks_are_ones(spelling):
    sketch = Sketch()
    mask = sketch.input("n", DType.I64, "b", "s")
    match spelling:
        case "cast":
            sketch.map("cast", mask, dtype=DType.BOOL)
        case "compare":
            sketch.map("equal", mask, sketch.full(0, mask), dtype=DType.BOOL)
        case _:
            number = sketch.map("cast", mask, dtype=DType.F32)
            off = sketch.map("subtract", sketch.full(1, number), number)
            sketch.map("multiply", off, sketch.full(-1e30, off))
    inputs = made(sketch.graph())
    assert (inputs.arrays["n"] == 1).all()
    assert inputs.arrays["n"].shape == (3, 40)
    assert inputs.notes[0].startswith("n i64[3, 40]: made up, ones")


def test_a_mask_whose_running_count_indexes_a_table_is_still_ones():
    sketch = Sketch()
    mask = sketch.input("n", DType.I64, "b", "s")
    count = sketch.add(Scan("sum", 1), [mask], DType.I64, ["b", "s"])
    sketch.look_up(sketch.map("subtract", count, sketch.full(1, count)))
    assert (made(sketch.graph()).arrays["n"] == 1).all()


def test_bools_and_what_nothing_uses_are_ones():
    sketch = Sketch()
    sketch.input("flag", DType.BOOL)
    sketch.input("length", DType.I32, 1)
    sketch.add(Opaque("com.example::Attention"), ["flag", "length"], DType.F32, ["s"])
    arrays = make_inputs(sketch.graph(), SIZES, np.random.default_rng(0)).arrays
    assert arrays["flag"] == np.bool_(True)
    assert arrays["flag"].shape == ()
    assert arrays["length"].tolist() == [1]


@pytest.mark.parametrize("how", ["multiply", "contract", "library"])
def test_what_becomes_an_angle_counts(how):
    sketch = Sketch()
    at = sketch.input("n", DType.I64, "b", "s")
    number = sketch.map("cast", at, dtype=DType.F32)
    frequency = sketch.constant(np.array([1.0, 0.1], np.float32))
    if how == "contract":
        angle = sketch.add(Contract("bs,f->bsf"), [number, frequency], DType.F32, ["b", "s", 2])
    elif how == "library":
        outer = Opaque("MatMul", lambda left, right: (np.multiply.outer(left, right),))
        angle = sketch.add(outer, [number, frequency], DType.F32, ["b", "s", 2])
    else:
        index = (Dim.of("#0"), Dim.of("#1"))
        wide = sketch.add(View(index), [number], DType.F32, ["b", "s", 2])
        angle = sketch.map("multiply", wide, sketch.add(View((Dim.of("#2"),)), [frequency], DType.F32, ["b", "s", 2]))
    both = sketch.add(Select(2, shape_of([0, 2])), [angle, angle], DType.F32, ["b", "s", 4])
    sketch.map("cos", both)
    inputs = made(sketch.graph())
    assert np.array_equal(inputs.arrays["n"], np.tile(np.arange(40), (3, 1)))
    assert "positions" in inputs.notes[0]


def test_a_mask_is_no_position_because_a_later_layer_takes_a_sine():
    sketch = Sketch()
    x, mask = sketch.input("x", DType.F32, "b", "s"), sketch.input("n", DType.I64, "b", "s")
    sketch.map("sin", sketch.map("multiply", x, sketch.map("cast", mask, dtype=DType.F32)))
    assert (made(sketch.graph()).arrays["n"] == 1).all()


def test_small_integers_fill_their_range():
    sketch = Sketch()
    sketch.map("cast", sketch.input("image", DType.U8, "b", "s", 30), dtype=DType.F32)
    image = made(sketch.graph()).arrays["image"]
    assert image.min() == 0
    assert image.max() == 255


def test_what_a_root_is_taken_of_is_not_negative():
    sketch = Sketch()
    variance = sketch.input("variance", DType.F32, "s")
    sketch.map("sqrt", sketch.map("add", variance, sketch.full(1e-5, variance)))
    assert made(sketch.graph()).arrays["variance"].min() >= 0


def test_the_root_of_a_mean_square_leaves_the_signs_alone():
    sketch = Sketch()
    x = sketch.input("x", DType.F32, "s")
    sketch.map("sqrt", sketch.add(Reduce("sum", (0,)), [sketch.map("multiply", x, x)], DType.F32, []))
    assert made(sketch.graph()).arrays["x"].min() < 0


def test_inputs_that_are_given_are_left_out():
    sketch = Sketch()
    sketch.map("add", sketch.input("x", DType.F32, "s"), sketch.input("weight", DType.F32, "s"))
    inputs = make_inputs(sketch.graph(), SIZES, np.random.default_rng(0), without={"weight"})
    assert list(inputs.arrays) == ["x"]
    assert len(inputs.notes) == 1


def test_a_missing_size_is_named_with_its_option():
    sketch = Sketch()
    graph = sketch.graph(sketch.input("x", DType.F32, "b", "s", "past"))
    with pytest.raises(InputError, match=r"the sizes past, s are not known: give --dim past=N --dim s=N"):
        make_inputs(graph, {"b": 1}, np.random.default_rng(0))


def test_absurd_sizes_are_refused_before_anything_is_made():
    sketch = Sketch()
    graph = sketch.graph(sketch.input("x", DType.F32, "b", "s"))
    with pytest.raises(InputError, match=r"would take 4000000000.0 GB, and this machine has"):
        make_inputs(graph, {"b": 10**9, "s": 10**9}, np.random.default_rng(0))
    with pytest.raises(InputError, match=r"shape \[-1, 4\]: give larger sizes"):
        make_inputs(graph, {"b": -1, "s": 4}, np.random.default_rng(0))


def test_a_type_that_noyau_does_not_have_cannot_be_made_up():
    sketch = Sketch()
    graph = sketch.graph(sketch.input("text", DType.OTHER))
    with pytest.raises(InputError, match=r"text is of a type that cannot be made up: give the inputs with --inputs"):
        make_inputs(graph, {}, np.random.default_rng(0))


def test_names_with_control_characters_are_escaped():
    sketch = Sketch()
    name = "\x1b[2J\nforged line"
    assert (
        made(sketch.graph(sketch.input(name, DType.F32))).notes[0].startswith(r"'\x1b[2J\nforged line' f32[]: made up")
    )


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_a_real_model_gets_ids_below_its_vocabulary_and_a_mask_of_ones(exporter):
    model = onnx.load(MODELS / f"llama_tiny_{exporter}.onnx")
    graph = import_model(model).graph
    given = {node.output for node in graph.inputs} - {value.name for value in model.graph.input}
    inputs = make_inputs(graph, {"batch": 2, "sequence": 300}, np.random.default_rng(0), without=given)
    assert inputs.notes == (
        "input_ids i64[2, 300]: made up, drawn from [0, 1024), as indices of model.model.embed_tokens.weight",
        "attention_mask i64[2, 300]: made up, ones, as a mask",
    )
    assert 900 < inputs.arrays["input_ids"].max() < 1024
    assert (inputs.arrays["attention_mask"] == 1).all()


COMPARED = {
    "two rates": ("y = Equal (x, a) z = Equal (x, b)", {8000, 16000}, (64,)),
    "one hot": ("y = OneHot <axis = -1> (x, depth, ends)", set(range(9)), (3, 40)),
    "padding": ("y = Equal (x, one)", {1}, (3, 40)),  # what may be a mask stays ones
}


@pytest.mark.parametrize("name", COMPARED)
def test_an_integer_is_drawn_from_what_it_is_compared_with(name):
    text, numbers, shape = COMPARED[name]
    dims = ", ".join(map(str, shape))
    constants = (
        "a = Constant <value_int = 8000> () b = Constant <value_int = 16000> () one = Constant <value_int = 1> ()"
    )
    constants += " depth = Constant <value_int = 9> () ends = Constant <value_floats = [0.0, 1.0]> ()"
    header = f'<ir_version: 9, opset_import: ["" : 18]> g (int64[{dims}] x) => (float[n, m, k] y)'
    if "z =" in text:
        header = header.replace("(float[n, m, k] y)", f"(bool[{dims}] y, bool[{dims}] z)")
    elif "Equal" in text:
        header = header.replace("float[n, m, k]", f"bool[{dims}]")
    model = onnx.parser.parse_model(f"{header} {{ {constants} {text} }}")
    inputs = make_inputs(import_model(model).graph, {"n": 3, "m": 40, "k": 9}, np.random.default_rng(0))
    assert set(inputs.arrays["x"].ravel().tolist()) == numbers
    told = "ones, as a mask" if numbers == {1} else "drawn from what it is compared with"
    assert inputs.notes[0].endswith(told)
