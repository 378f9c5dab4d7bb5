"""Language triton as a whole: what stands in a text, what is refused, and tiles of any size."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import noyau
from noyau import nn
from noyau.codegen.triton import printer as triton_printer
from noyau.codegen.triton.printer import length_of
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.dtypes import DType
from noyau.errors import GraphError
from noyau.ir.dims import Dim
from noyau.ir.loops import Launch, Tile, TilePolicy
from noyau.kernels.programs.generate import generate_usual
from tests.codegen.kernels import GOLDEN, LAYOUTS
from tests.compiler.schedules.groups import log_softmax, reduced, residual_rms_norm
from tests.jobs.check.groups import Group, layer_norm, one_map, rms_norm, softmax
from tests.trying import attempt


def text_of(graph, name="kernel"):
    return triton_printer.together([on_gpu(lower(graph, name))])


@pytest.mark.parametrize("name", ["triton", "a-b", "while", "noyau_x", "torch"])
def test_a_name_that_cannot_be_that_of_a_function_is_refused(name):
    with pytest.raises(GraphError, match="cannot be the name of a Python function"):
        text_of(softmax(), name)


def test_the_text_is_python_and_needs_torch_and_triton_alone():
    tree = ast.parse(text_of(log_softmax()))
    modules = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    modules += [str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert {module.partition(".")[0] for module in modules} == {"torch", "triton"}


def test_a_comment_stays_one():
    text = triton_printer.together([on_gpu(lower(softmax(), "kernel"))], 'x"""\nimport os\r\n\u2028import sys')
    assert next(line for line in text.splitlines() if line.startswith("import ")) == "import torch"


def test_launches_that_wait_may_begin_early_where_the_device_has_it():
    kernel = on_gpu(lower(softmax(), "kernel"))
    launches = [replace(each, hints=replace(each.hints, waits=True)) for each in kernel.launches]
    text = triton_printer.together([replace(kernel, launches=tuple(launches))])
    assert (
        text.count("    if EARLY: tl.extra.cuda.gdc_wait(); tl.extra.cuda.gdc_launch_dependents()\n")
        == text.count("EARLY: tl.constexpr")
        == len(launches)
    )
    assert (
        "EARLY = x.is_cuda and not torch.version.hip and torch.cuda.get_device_capability(x.device) >= (9, 0)" in text
    )
    assert "EARLY" not in text_of(one_map("exp"))


def test_a_launch_that_reads_what_another_leaves_waits_for_it_by_itself():
    """So that it begins while the other ends; the first one of a call follows who knows what."""
    text = text_of(reduced("sum", "n"))
    first, second = re.findall(r"^def kernel_\d\(.*?\n\n", text, re.MULTILINE | re.DOTALL)
    assert "EARLY" not in first
    assert "    if EARLY: tl.extra.cuda.gdc_wait()\n" in second
    assert "gdc_launch_dependents" not in text  # more programs at once took longer
    starts = re.findall(r"kernel_(\d)\[.*?\n.*?(\*\*.*)?\n", text)
    assert starts == [("0", ""), ("1", '**({"launch_pdl": True} if EARLY else {})')]


@pytest.mark.parametrize(("dtype", "count"), [(DType.BF16, 2), (DType.F32, 0)])
def test_rows_of_halves_that_have_cells_in_common_are_told_of_registers(dtype, count):
    """So that all loads are on the way at once; wider cells need more."""
    text = generate_usual(nn.rope.description, nn.rope.usual([dtype] * 3, [4, 2, 2]), "triton").text
    assert text.count('registers = {"maxnreg": 64} if x.is_cuda and not torch.version.hip else {}') == count
    assert text.count(", **registers\n") == count


def test_a_size_that_a_tile_of_rows_in_a_row_covers_is_a_number_to_triton():
    """Where the tile is even; not where a row is in pieces, nor of rows with folds."""
    text = generate_usual(nn.rope.description, nn.rope.usual([DType.BF16] * 3, [4, 2, 2]), "triton").text
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("k = ") and "INDEX" in line]
    usual = "tl.cast(k, INDEX) * k_STEP"
    assert lines == [f"k = {usual}", f"k = COLUMNS if COLUMNS_EVEN else {usual}", f"k = {usual}"]
    assert "_EVEN else" not in text_of(softmax())


@pytest.mark.parametrize("d", [24, 40, 48, 64])
def test_rows_that_fill_no_tile_are_one_run_of_cells(d):
    """Those of a power of two of cells, or that begin at no multiple of 16 bytes, are tiles of rows."""
    from noyau.hosts.torch.cuda.array_kernels import DeviceKernel

    made = generate_usual(nn.rope.description, nn.rope.usual([DType.F32] * 3, [4, 2, 2]), "triton")
    case = "if ((k <= 512) and ((((k * 2) % 4) == 0) and ((k % 4) == 0))) and (not ((16384 % max(1, k)) == 0)):"
    assert case in made.text
    noise = np.random.default_rng(d)
    x, cos, sin = (noise.standard_normal(shape, np.float32) for shape in ((2, 3, 5, d), (5, d), (5, d)))
    (got,) = DeviceKernel(made.text, *made.program.kernels).call_guarded(x, cos, sin)
    turned = np.concatenate([-x[..., d // 2 :], x[..., : d // 2]], -1)
    np.testing.assert_allclose(got, x * cos + turned * sin, rtol=1e-5, atol=1e-6)


def test_the_end_of_a_tile_behind_rows_that_lie_apart_fits_into_32_bits():
    """Rows of a few cells lie far apart: those behind the last one would be behind the last number."""
    graph, layouts = GOLDEN["softmax_inner"][0], LAYOUTS["softmax_inner"]
    text = triton_printer.together([on_gpu(lower(normalise(graph), "kernel", layouts))])
    (of_rows,) = [found for found in re.findall(r"_until = (.*)", text) if "ROWS" in found]
    tl = SimpleNamespace(maximum=max, minimum=min, cdiv=lambda a, b: -(-a // b))
    sizes = {"tl": tl, "rows": 1000, "n": 3, "x_stride0": 2_140_000, "ROWS": 64, "COLUMNS": 8, "i0t": 15, "ALIGN": 4}
    assert 999 * 2_140_000 + 3 <= eval(of_rows, sizes) < 1 << 31


def test_few_rows_short_ones_and_long_ones_are_three_launches_and_one_runs():
    text = text_of(softmax()).partition("def kernel(")[2]
    heads = [line for line in text.splitlines() if line.startswith(("    if n", "    if (", "    elif", "    else"))]
    assert heads == [
        "    if ((rows <= 128) and (n <= 524288)) and (not (n <= 8192)):",
        "    elif n <= 16384:",
        "    else:",
    ]


def test_launches_that_follow_each_other_have_one_condition_and_name_things_once():
    text = text_of(softmax()).partition("def kernel(")[2].partition("elif")[0]
    assert [text.count(f"kernel_{number}[") for number in range(3)] == [1, 1, 0]
    assert text.count("SHARE = ") == text.count("programs = ") == 1


def test_a_block_of_one_value_is_stored_as_one():
    """Triton takes no block for the place of a scalar."""
    text = text_of(softmax(rows=1, columns=1))
    assert "tl.store(v9 + tl.zeros((1, 1), tl.int32), v9_2)" in text
    assert "tl.zeros(" not in text_of(softmax())


def test_the_registers_of_32_warps_are_told_where_several_arrays_are_read_at_once():
    text = text_of(residual_rms_norm())
    assert text.count('registers = {"maxnreg": 64} if warps == 32 else {}\n') == 1
    assert text.count("num_warps=warps, **registers\n") == 1
    assert not re.search("maxnreg|registers", text_of(softmax()))


def test_a_map_has_no_more_threads_than_cells():
    assert 'BLOCK = tiles.get("BLOCK", 64)' in text_of(one_map("exp", shape=(64,)))
    whole = "min(1024, max(32, triton.next_power_of_2(n)))"
    assert f'BLOCK = tiles.get("BLOCK", {whole})' in text_of(one_map("exp", shape=("n",)))


def test_rows_that_begin_anywhere_are_moved_in_lines():
    text = text_of(softmax())
    assert 'ALIGN = tiles.get("ALIGN", 1 if n % 4 == 0 else 4)' in text
    assert "noyau_load(x + " in text
    assert "noyau_store(" in text
    several = text_of(layer_norm())
    assert 'BLOCK = tiles.get("BLOCK", 16384 // (1 if ALIGN == 1 else 8) * (' in several
    assert 'num_warps=tiles.get("num_warps", BLOCK // 1024 if ALIGN == 1 else max(1, BLOCK // 256))' in several


def jumping(dtype):
    g = Group()
    x = g.input("x", dtype, "n")
    g.map("floor", g.map("exp", x))
    return g.graph()


@pytest.mark.parametrize(
    ("graph", "again"),
    [(rms_norm(), ["x_i"]), (residual_rms_norm(), ["x_i", "v_r_i"]), (layer_norm(), []), (softmax(), [])],
)
def test_a_row_of_one_fold_is_loaded_again_to_write_with(graph, again):
    """Not where two folds read it, which hold it between them, nor where an exponential would be computed again."""
    kept = text_of(graph).partition("COLUMNS: tl.constexpr")[2].partition("@triton.jit")[0]
    assert re.findall(r"noyau_again\((\w+),", kept) == again


def test_halves_alone_are_computed_loosely():
    assert "tl.exp(" in text_of(one_map("exp", DType.BF16))
    assert "noyau_near_sigmoid_f32" in text_of(one_map("sigmoid", DType.F16))
    assert "libdevice.exp(" in text_of(one_map("exp", DType.F32))
    assert "libdevice.exp(" in text_of(jumping(DType.BF16))


def test_numbers_of_rows_do_not_make_halves_exact():
    bf16, f32 = DType.BF16, DType.F32

    def shifted(x, most):
        return np.exp(x.astype(np.float32) - most[:, None]).astype(x.dtype)

    def scaled(x, most):
        return np.exp(x.astype(np.float32) - most).astype(x.dtype)

    near = noyau.op("bf16[rows, n], f32[rows] -> bf16[rows, n]")(shifted)
    exact = noyau.op("bf16[rows, n], f32[n] -> bf16[rows, n]")(scaled)
    assert "tl.exp(" in near.generate("triton", [bf16, f32], [2, 1]).text
    assert "libdevice.exp(" in exact.generate("triton", [bf16, f32], [2, 1]).text


def test_nothing_is_fused_where_a_product_is_rounded_first():
    @noyau.op("f32[m, n], f32[n] -> f32[m, n]")
    def weighted(x, w):
        v = x * w
        return np.exp(v - v.max(-1, keepdims=True))

    assert "enable_fp_fusion=False" in weighted.generate("triton", [DType.F32, DType.F32], [2, 1]).text
    assert "enable_fp_fusion" not in text_of(softmax())


def test_a_maximum_of_another_launch_is_not_fused_either():
    @noyau.op("f32[m, n], f32[m, n] -> f32[m, n]")
    def masked(x, mask):
        v = x * 0.125 + mask
        return np.exp(v - v.max())

    text = masked.generate("triton", [DType.F32, DType.F32], [2, 2]).text
    assert text.count("enable_fp_fusion=False") == text.count("[(programs,)](") > 1


def test_rounds_are_loaded_ahead_where_programs_take_in_several_rows_alone():
    assert "num_stages" not in text_of(softmax())
    assert "num_stages" not in text_of(reduced("sum", "rows", "n", axes=(1,)))


def test_a_number_beside_a_narrow_integer_is_one_too():
    """Else Triton widens both, and a loop would carry a sum of another dtype than it began with."""
    least = noyau.op("u16[n] -> u16")(lambda x: np.minimum(x, 2).sum(dtype=np.uint16))
    assert "tl.minimum(tl.full((), 2, tl.uint16), x_i)" in least.source("triton")


def test_the_rest_of_a_quotient_is_computed_in_float64():
    """CUDA's fmodf, as Triton links it, takes a denormal for 0, and the rest is NaN then."""
    for function in (lambda x, y: np.fmod(x, y), lambda x, y: x % y):
        text = noyau.op("f32[n], f32[n] -> f32[n]")(function).source("triton")
        assert re.search(r"libdevice\.fmod\(\w+\.to\(tl\.float64\), \w+\.to\(tl\.float64\)\)\.to\(", text)


def test_a_sum_of_all_goes_through_scratch():
    text = text_of(reduced("sum", "n", axes=(0,)))
    assert text.count("@triton.jit\ndef kernel_") == 2
    assert "_of_chunk = torch.empty((triton.cdiv(n, 32768),), dtype=torch.float32" in text


def test_halves_are_loaded_as_float32():
    assert ".to(tl.float32)" in text_of(one_map("exp", DType.F16))


def test_any_tiles_give_the_same():
    from noyau.hosts.torch.cuda.array_kernels import DeviceKernel

    kernel = on_gpu(lower(one_map("tanh"), "kernel"))
    x = np.linspace(-4, 4, 37, dtype=np.float32)
    tried = [DeviceKernel(triton_printer.together([kernel]), kernel, tiles={"BLOCK": block}) for block in (8, 16, 64)]
    results = [run.call_guarded(x)[0] for run in tried]
    assert all(np.array_equal(result, results[0]) for result in results)
    assert np.abs(results[0] - np.tanh(x.astype(np.float64))).max() < 2e-7


@pytest.mark.parametrize(
    ("signature", "function"),
    [
        ("f32[n, m, k] -> f32[3, 0]", lambda x: x[-1, [-1, -1, -1], :0]),
        ("f32[n, m, k] -> f32[m, k]", lambda x: x[:0].sum(0)),
        ("f32[n, m, k] -> f32[n, 0, k]", lambda x: x[:, :0] - x[:, :0].max(-1, keepdims=True, initial=0)),
    ],
)
def test_what_is_always_empty_has_tiles_too(signature, function):
    compile(noyau.op(signature)(function).source("triton"), "text", "exec")


def test_rows_of_which_nothing_is_taken_have_a_length_too():
    assert length_of(Tile("CELLS", TilePolicy.FIXED, 1), Launch(())) == Dim.of(1)


@pytest.mark.parametrize("function", [lambda x: x**0.7, lambda x: np.float32(0.7) ** x])
def test_a_number_that_is_cast_has_a_dtype(function):
    text = noyau.op("f32[n] -> f32[n]")(function).source("triton")
    assert "libdevice.pow(" in text
    assert re.search(r"[ (]\d+\.\d+\.to\(", text) is None


def test_the_end_of_an_array_is_asked_where_rows_are_read_backwards():
    text = noyau.op("f32[n, m] -> f32[(n + 1) // 2, m]")(lambda x: x[::-2]).source("triton")
    of_alike, of_few = re.findall(r"_until = (.*)", text)
    tl = SimpleNamespace(maximum=max, minimum=min, cdiv=lambda a, b: -(-a // b))
    sizes = {"tl": tl, "n": 5, "m": 5, "ROWS": 4, "COLUMNS": 8, "ALIGN": 4, "i0t": 0, "i1t": 0}
    assert eval(of_few, sizes) >= 25
    assert eval(of_alike, sizes | {"i0r": 0}) >= 25


@noyau.op("f64[], f64[n] -> f64[n]")
def rest_of_one(x, y):
    return np.mod(x, y)


@noyau.op("f64[n, m] -> f64[n, m]")
def turns(x):
    return np.cumsum(x + np.arange(x.shape[1]), axis=1)


@noyau.op("u8[n] -> p: f64[n, n], q: i64[n], r: f64[]")
def beside_sums(x):
    wide = x.astype(np.int64)
    return (wide | wide) + np.eye(x.size), wide * np.nanprod(wide, keepdims=True), np.nanmean(wide | wide)


@noyau.op("f32[n] -> p: i64[n], q: i64")
def of_two_numbers(x):
    return np.where(x > 0, 3, 1) * 2_000_000_000, np.where(x > 0, 1, 0).argmax()


@noyau.op("f32[n, 4], f64[k, 8] -> i64[n]")
def looked_up_by_sums(x, table):
    return table[(x > 0).sum(1) % table.shape[0]].argmax(-1)


@noyau.op("f64[n, m] -> f64[n, m]")
def beside_its_sum(x):
    return np.concatenate([x[:, :-1], x[:, :-1].sum(1, keepdims=True)], axis=1)


@pytest.mark.parametrize(
    ("op", "arrays"),
    [
        (beside_its_sum, [np.ones((3, 5))]),
        (looked_up_by_sums, [np.linspace(-3, 3, 20, dtype=np.float32).reshape(5, 4), np.eye(5, 8)]),
        (of_two_numbers, [np.linspace(-3, 3, 6, dtype=np.float32)]),
        (rest_of_one, [np.array(7.5), np.linspace(-3, 3, 6)]),
        (turns, [np.ones((3, 5))]),
        (beside_sums, [np.arange(1, 6, dtype=np.uint8)]),
    ],
    ids=[
        "rows read otherwise",
        "tables",
        "a choice of two numbers",
        "a number and a tile",
        "what loops count",
        "beside sums",
    ],
)
def test_the_interpreter_takes_what_compiles(op, arrays):
    """There a function of libdevice is NumPy's, and what loops count is a number of Python's."""
    from noyau.hosts.torch.cuda.array_kernels import DeviceKernel

    made = op.generate("triton")
    (kernel,) = made.program.kernels
    wanted = op.reference(*arrays)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    got = DeviceKernel(made.text, kernel).call_guarded(*arrays)
    assert all(np.allclose(one, other, rtol=1e-15) for one, other in zip(got, wanted, strict=True))


def test_rows_that_are_folded_in_part_are_not_loaded_to_be_held():
    """What is written reads them under a condition, which is another load: whether to load again is not asked."""
    assert "AGAIN" not in beside_its_sum.source("triton")
    assert "evict_last" in beside_its_sum.source("triton")  # of rows that are read in tiles, twice


def test_rows_beside_sums_of_all_run_in_parallel():
    text = beside_sums.source("triton")
    assert "for i0 in " not in text
    assert "i0t = tl.program_id(0)" in text


def test_what_is_read_at_one_place_alone_is_loaded_ahead():
    def scaled(x, w):
        return x / np.sqrt(np.sum(x * x, axis=1, keepdims=True)) * w

    def continued(x, w):
        ones = np.ones((x.shape[0], 2), np.float32)
        return np.concatenate([x / np.sqrt(np.sum(x * x, axis=1, keepdims=True)), ones], axis=1) * w

    assert "noyau_behind" in noyau.op("f32[rows, n], f32[n] -> f32[rows, n]")(scaled).source("triton")
    assert "noyau_behind" not in noyau.op("f32[rows, 7], f32[9] -> f32[rows, 9]")(continued).source("triton")


def test_no_launch_takes_what_was_computed_of_another_tile():
    """Names of the host that a launch takes are computed anew where what they were computed of has changed."""
    made = attempt(7024)
    text = triton_printer.together([on_gpu(made.lowered)])
    (function,) = [node for node in ast.parse(text).body if getattr(node, "name", "") == made.lowered.name]
    reads, stale = dict[str, set[str]](), set[str]()
    assert "BLOCK_EVEN" in text
    for node in function.body:
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        if isinstance(node, ast.Assign):
            (target,) = [each.id for each in node.targets]
            stale = (stale | {name for name, of in reads.items() if target.isupper() and target in of}) - {target}
            reads[target] = names - {target}
        elif isinstance(node, ast.If):
            assert stale.isdisjoint(names)
