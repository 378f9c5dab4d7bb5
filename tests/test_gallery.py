"""Each page of the gallery runs as it stands, and its report names the bug of the broken twin."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "dlpack": ("10.0 False", "x is no array: list speaks neither DLPack nor Python's buffers"),
    "vector_sum": (
        "sums[simd]: agreed on",
        "right for every row of 1 to 64 cells",
        "sums[simd_without_rest]: wrong-value: wrong at out[0] for x: f32[1, 1]",
        "times as long as by_rows: its inner loop steps 8192 bytes",
    ),
    "dot_ladder": (
        "dot[chain]: agreed on",
        "dot64[lanes]: agreed on",
        "chain_in_float32 [c] is wrong: wrong at out[]",
        "python_loop [python]",
    ),
    "databases": (
        "slope(x, y): aggregate and window function; 4096 rows at once; frames are computed anew",
        "decibels(power): scalar function; called row by row",
        "sensor 2: 3.0",
        "decibels: (33.01, None)",
        "slope(x, y): aggregate and window function; generated C",
        "as DuckDB's own: True",
        "Mean is no monoid: merge is not associative: ",
    ),
    "generated_cuda": (
        "def noyau_max_f32(own):",
        "@triton.jit",
        "struct noyau_max_f32 {",
        "softmax[printed]: agreed on",
        "softmax[printed]: no race found on",
        "softmax[numba_cuda]: agreed on",
        "softmax[numba_cuda]: no race found on",
        "softmax[python_without_barriers]: race: ",
        "softmax[without_barriers]: race: ",
        "nothing orders them",
    ),
    "streams": (
        "doubled[with_an_event]: agreed on",
        "doubled[without_an_event]: race: a kernel in stream 2 reads dx[0], written by a copy in stream 1 on line 15",
        "let the later stream wait: cudaEventRecord",
    ),
    "load_inline": (
        "square_matrix[square_matrix]: agreed on",
        "square_matrix[rounded_down]: unwritten: never wrote 1 of the 1 cells of result",
    ),
    "filter": ("clipped[select]: agreed on", "clipped[minimum]: wrong-value: ", "want nan", "branch: "),
    "cache_ladder": (
        "walked[walk]: agreed on",
        "visited[told_ahead]: agreed on",
        "visited[whatever_the_order]: wrong-value: wrong at out[]",
        "a permutation does not show it: the sums are equal",
        "to the neighbour",
    ),
    "random_sums": (
        "reproducible : 1 results in 100 orders, spread 0,",
        "total[any_order]: ",
        "order-dependent",
        "total[compensation_lost]: precision: wrong at",
    ),
    "map": (
        "(5, 3, 4)",
        "activated[by_strides]: agreed on",
        "map_leaky[c: float[*batch, n] -> float[*batch, n]]: agreed on",
        "activated[by_shape]: wrong-value: ",
        "stride-blind: it is right on packed arrays",
    ),
    "zip": (
        "(3, 4, 5) (3, 4, 5)",
        "scale_rows[by_index]: agreed on",
        "scale[c]: agreed on",
        "scale_rows[forgets_to_broadcast]: out-of-bounds: ",
    ),
    "reduce": (
        "() (4,) (3, 1, 5)",
        "largest_of_rows[from_the_least]: agreed on",
        "largest[c]: agreed on",
        "largest_of_rows[from_zero]: wrong-value: ",
        "got 0, want -inf",
    ),
    "folds": (
        "0.5f * ",
        "decayed_rows[from_left_to_right]: agreed on",
        "decayed_rows[in_halves]: agreed on",
        "energy[c]: agreed on",
        "decayed_rows[as_a_sum]: wrong-value: wrong at out[0] for x: f32[1, 2]",
    ),
    "matrix_chain": (
        "from_the_right: 4194304 operations, 5120 cells",
        "least flops: from_the_left least cells: in_pairs",
        "einsum's own: ['einsum_path', (2, 3), (1, 2), (0, 1)]",
        "chain[in_pairs]: agreed on",
        "chain[in_half]: wrong-value: wrong at out[0, 0]",
        "counted: from_the_right; the clock: ",
    ),
    "ops_on_cuda": (
        "hypot ran ",
        "def hypot_0(",
        "the gradient is within",
        "on meta; tensors of one call lie on one device",
        "hypot: y is of NumPy, and x a tensor",
    ),
    "op_in_onnxruntime": (
        "rms_norm[by_rows]: agreed on",
        "of float64: right body: within",
        "rms_norm[without_eps] does not go into a model: it has not been checked yet",
        "rms_norm[without_eps]: precision: wrong at out[0, 0]",
        "trusted kernel of a row of zeros: nan",
        "its body of a row of zeros: 0.0",
    ),
    "matrix_product": (
        "product[ikj_i]: agreed on",
        "product_with_transposed[ijk_i]: agreed on",
        "product[ikj_k]: race: ",
        "product[kij_k]: race: ",
        "the reference is BLAS",
    ),
    "norms": (
        "add_layer_norm[by_rows]: agreed on",
        "add_layer_norm[c]: agreed on",
        "add_layer_norm[one_pass]: precision: wrong at",
        "the gradient",
    ),
    "softmax": (
        "softmax[by_rows]: agreed on",
        "softmax[no_maximum]: wrong-value: wrong at",
        "got nan",
        "each: [1.47 1.94 0. 3.41 3.13 0. ]",
        "cross_entropy_mean: an index is outside the axis that it looks into",
        "the gradient",
    ),
    "activations": (
        "swiglu[loop]: agreed on",
        "swiglu[overflow]: wrong-value: wrong at",
        "swiglu[by_eight]: unwritten: never wrote 1 of the 1 ",
        "gelu by tanh: [-0. -0.045 0. 1.955 4. ]",
        "the gradient",
    ),
    "rotary": (
        "rope[pairs]: agreed on",
        "rope[wrong_way]: wrong-value: wrong at out[0, 1, 0]",
        "rope[no_sign]: wrong-value: wrong at out[0, 1, 0]",
        "7 apart, at 10 and at 80: 6.228 6.228",
        "neighbours as pairs: [[0. 1.]]",
    ),
    "triton_copy": (
        "copy[handed_out]: unwritten: no program of the grid (0,) stores out[0]",
        "copy[tail_mended]: out-of-bounds: program 0 reads x at 1, ",
        "copy[mended]: agreed on",
    ),
    "triton_grey": ("grey[by_blocks]: agreed on", "grey[columns_alone]: out-of-bounds: program 0 writes out at 1, "),
    "triton_vector_add": ("add[by_blocks]: agreed on", "add[tuned]: agreed on", "add[no_mask]: out-of-bounds: "),
    "twenty_operators": (
        "add_mul[by_rows]: agreed on",
        "add_mul[by_remainder]: wrong-value: wrong at out[0, 1]",
        "AddMul, transposed right at 4 shapes: runs c",
        "TriMatrix right at 3 shapes: runs c",
        "MaskedScatterNDOfShape right at 3 shapes: runs c",
    ),
    "polynomial_features": (
        "products[by_pairs]: agreed on",
        "squares[by_columns]: agreed on",
        "squares[as_a_square]: out-of-bounds: ",
        "4816896 products written and read, or 196608 numbers of x @ A:",
    ),
    "einsum": (
        "ijk_bj_first: ijk bj -> ikb, then bi ikb -> bk: ",
        "abc,abd,ae->ecd: 3 orders, right",
        "bilinear[one_nest]: agreed on",
        "bilinear[summed_too_early]: wrong-value: wrong at out[0, 0]",
    ),
    "attention": (
        "attention[online]: agreed on",
        "attention[c]: agreed on",
        "attention[never_rescaled]: wrong-value: wrong at out[0, 1, 0]",
        "the gradient of attention is within",
    ),
    "product_gradient": (
        "slope_of_b[row_by_row]: agreed on",
        "slope_of_b[not_turned]: out-of-bounds: ",
        "and these copies: []",
        "the gradients are within",
    ),
    "prange_classes": (
        "smoothed[of_neighbours]: agreed on",
        "map: no two iterations touch one cell",
        "reduction: iterations only update total (sum)",
        "running[in_pieces]: agreed on",
        "counts[in_parts]: agreed on",
        "smoothed[in_place]: race: iteration ",
        "= mend: write to another array than the one that is read",
        "distance[in_one_cell]: race: iteration 1 writes out[0], written by iteration 0",
        "running[at_once]: race: iteration ",
        "scan: line ",
        "counts[bin_by_bin]: race: iteration ",
    ),
    "grid_stride": (
        "square[strided]: agreed on",
        "launched: [128, 64]",
        "hypot[one_thread]: agreed on",
        "launched: [1, 1]",
        "square[no_guard]: out-of-bounds: thread 0 of block 0 reads x at 0, which has 0 cells",
        "square[no_stride]: unwritten: no thread of [2, 64] writes out[128]",
        "square[half_empty]: warning: launch: ",
        "square[block_a_cell]: warning: launch: ",
        "1000000 cells: equal to five decimals",
    ),
    "thread_counter": (
        "the racy kernel, simulated: ",
        "threads[one_by_one]: agreed on",
        "positive[by_votes]: agreed on",
        "threads[increment]: race: thread 1 of block 0 reads out[0], written by thread 0 of block 0",
        "positive[no_barrier]: race: thread ",
    ),
    "histogram": (
        "histogram[by_atomics]: agreed on",
        "histogram[privatised]: agreed on",
        "histogram[racy]: race: ",
        "histogram[truncated]: wrong-value: wrong at out[0]",
        "np.histogram",
    ),
    "scatter_nd": (
        "scatter_nd[by_atomics]: agreed on",
        "order-dependent: floats are merged by atomics in any order",
        "scatter_nd[by_owners]: no race found on",
        "scatter_nd[numba_cuda]: agreed on",
        "scatter_nd[numba_cuda]: no race found on",
        "scatter_nd[racy]: race: ",
        "scatter_nd[from_the_begin]: wrong-value: wrong at out[",
        "numba_cuda: cuda.atomic.add(out, ",
        "cuda: noyau_atomic_add(&out[",
    ),
    "scan": (
        "running_sum[by_doubling]: agreed on",
        "running_sum[by_doubling]: no race found on",
        "running_sum[by_neighbours]: agreed on",
        "running_sum[one_buffer]: race: ",
        "running_sum[forgetful]: wrong-value: wrong at out[0, 32]",
        "__global__ void __launch_bounds__(256) running_sum_0(",
    ),
    "vector_sum_ladder": (
        "total[modulo]: agreed on",
        "total[sequential]: agreed on",
        "total[in_blocks_of_50]: agreed on",
        "total[first_add]: agreed on",
        "total[shuffles]: agreed on",
        "order-dependent: floats are merged by atomics in any order",
        "total[no_barrier]: race: ",
    ),
    "transpose": (
        "32 cells wide: 32 of a warp's 32 lanes",
        "33 cells wide: 1 of a warp's 32 lanes",
        "transposed[naive]: agreed on",
        "transposed[padded]: agreed on",
        "transposed[no_barrier]: race: ",
    ),
    "stencil": (
        "heat[cell_by_cell]: agreed on",
        "heat[edges_apart]: agreed on",
        "heat[in_tiles]: agreed on",
        "heat[in_place]: race: iteration 2 reads out[1, 1]",
        "heat[no_guard]: out-of-bounds: thread (0, 0) of block 0 reads u at 1 along axis 0",
        "heat[no_barrier]: race: ",
        "after 1000 steps, ten rows below the edge: 65.5 of 100 degrees",
    ),
    "tiled_matmul": (
        "product[naive]: agreed on",
        "product[tiled]: agreed on",
        "product[one_barrier]: race: ",
    ),
    "nearest_neighbours": (
        "nearest[best]: agreed on",
        "nearest[by_product]: wrong-value: wrong at squared[0]",
        "around 0: the product finds 100% of the neighbours",
        # How few, and how far below 0, is as the local BLAS rounds.
        re.compile(r"around 1000: the product finds \d\d?% of the neighbours, the least squared distance is -[\d.]+;"),
    ),
    "quantile_regression": (
        "weights[select]: agreed on",
        "normal_equations[one_pass]: agreed on",
        "weights[without_floor]: wrong-value: wrong at out[0]",
        "got inf, want",
        "0.9: 3.62, by NumPy 3.62; the line [1.63 3.38], 90.0% below",
    ),
    "profile_model": (
        "llama_tiny_dynamo.onnx: 151 nodes in the file",
        "the nodes of the first run add up to ",
        "noyau's: the session against itself: ",
    ),
    "llama_path": (
        "static int32_t gather_sum_rsqrt_0_",
        "right: right on 16 cases",
        "last_column_missed: tried on 16 cases: wrong at embedding[0, 0, 63]",
        "half_precision_inside: tried on 16 cases: wrong at",
        "of 11 kernels kept",
        "logits (1, 7, 1024)",
    ),
    "kernels_of_others": (
        "scaled[by_threads]: agreed on",
        "scaled[by_blocks]: agreed on",
        "no_mask: the rule: passes; noyau: out-of-bounds",
        "no_atomic: the rule: passes; noyau: race",
        "no_tail: the rule: passes; noyau: unwritten",
        "replay: the rule: passes; noyau: wrong-value",
        "paused[paused]: warning: ordered-by-chance: ",
        "paused[paused]: race: ",
    ),
    "own_kernel": (
        "encloses no graph: add_267 reads where",
        'BETWEEN = (["embedding", "linear_3"], ["add_306", "mul_256"])',
        "activations of made-up inputs among them: wrong at mul_256[0, 0, 0]",
        "two pieces of its work change output 1 at [0, 0, 0]",
        "no value differs",
    ),
    "stream": (
        "exact: True",
        "Mean[laws]: its laws hold in 12 rounds",
        "mean: 12.386495 NumPy's: 12.386495",
        "MeanOfMeans[laws]: wrong-value: merge is not associative",
        "MeanOfMeans is no monoid",
    ),
    "distinct_count": (
        "within 5 %: True True",
        "ten parts are one pass: True",
        "DistinctSample[laws]: its laws hold in 12 rounds",
        "mean place of a sample, of 1: 0.5 of 10000 rows",
        "MixedLevels[laws]: wrong-value: merged chunks are not one pass",
        "HalfOfEach[laws]: wrong-value: merge is not associative",
    ),
    "least_squares": (
        "by R: [ 2. 3. -1.] right: True",
        "by products, right: False",
        "R of chunks is R of all: True",
        "LeastSquares[laws]: its laws hold in 12 rounds",
        "MeanOfFits[laws]: wrong-value: it depends on where a chunk ends",
    ),
    "health_spending": (
        "rows: 40000",
        "groups: ['AMC', 'AME', 'AMO', 'CMU'] rows: 40000",
        "the column PRS_DEP_MNT has",
        "left out: True",
        "dask: True",
        "SumsByText[laws]: wrong-value: it depends on where a chunk ends",
    ),
    "processes_threads": (
        "in_a_kernel by processes, equal: True",
        "counted by threads: 400000 of 400000",
        "counted by processes: 0 of 400000",
        "returned and added up: True",
    ),
    "fused_expressions": (
        "log_sigmoid_mul_sum[sums]: agreed on",
        "log_sigmoid_mul_sum[log_of_sigmoid]: wrong-value: wrong at",
        "piecewise linear: [-1. -0.5 0. 3. 6. ]",
    ),
}


BRIEF = ("dlpack", "kernels_of_others")  # the others take up to half a minute each


WITH_NUMBA = (
    *("prange_classes", "grid_stride", "thread_counter", "histogram", "scan"),
    *("vector_sum_ladder", "transpose", "stencil", "tiled_matmul", "kernels_of_others"),
)


def test_no_page_is_without_a_test():
    assert {path.stem.removeprefix("plot_") for path in (ROOT / "examples" / "gallery").glob("plot_*.py")} == {*PAGES}


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if page in BRIEF else pytest.mark.long) for page in PAGES]
)
def test_a_page_says_what_is_right_what_is_wrong_and_what_is_fast(page):
    path = ROOT / "examples" / "gallery" / f"plot_{page}.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    ran = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, env=environment, cwd=path.parent, check=False
    )
    assert ran.returncode == 0, ran.stderr
    said = " ".join(ran.stdout.split())
    assert not re.search(r"WRONG|: wrong$", ran.stdout, re.MULTILINE)
    assert [words for words in PAGES[page] if not is_said(words, said)] == []


@pytest.mark.parametrize(
    ("page", "package"),
    [*((page, "Triton") for page in PAGES if page.startswith("triton_")), *((page, "Numba") for page in WITH_NUMBA)],
)
def test_a_page_says_what_it_needs(page, package, capsys, monkeypatch):
    path, extra = ROOT / "examples" / "gallery" / f"plot_{page}.py", package.lower()
    monkeypatch.setitem(sys.modules, extra, None)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert not ended.value.code
    needs = f"this page needs {package}, which is not installed; run: pip install 'noyau-kernels[{extra}]'\n"
    assert capsys.readouterr().out == needs


def is_said(words, said):
    """Whether a text without line breaks has these words, or what a pattern asks for."""
    return words.search(said) if isinstance(words, re.Pattern) else " ".join(words.split()) in said


@pytest.fixture(scope="module")
def library():
    """The example of a small tensor library."""
    return runpy.run_path(str(ROOT / "examples" / "teaching_tensor.py"))


@pytest.mark.parametrize("task", ["two_moons", pytest.param("exclusive_or", marks=pytest.mark.long)])
def test_the_teaching_library_trains_a_classifier(library, task, capsys):
    points = library[task](400)
    network = library["train"](*points, steps=100)
    assert network.first.shape == (2, 100)
    assert library["accuracy"](network, *points) >= 0.98
    assert library["accuracy"](network, *library[task](1000, seed=1)) >= 0.97
    assert "step  100: loss" in capsys.readouterr().out


def test_the_teaching_library_s_gradients_are_those_of_differences(library):
    noise, tensor = np.random.default_rng(0), library["Tensor"]
    arrays = [noise.normal(size=shape) for shape in ((3, 4), (1, 4), (4, 2))]

    def loss(*given):
        a, b, c = map(tensor, given)
        made = ((a + b).relu() * a.permute(1, 0).exp().permute(1, 0) - b.softplus()) @ c
        return a, b, c, (made * made + made.view(2, 3).view(3, 2)).softplus().log().sum(axis=1).mean()

    *leaves, total = loss(*arrays)
    total.backward()
    for at, leaf in enumerate(leaves):
        for cell in np.ndindex(leaf.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [array.copy() for array in arrays]
                moved[at][cell] += step
                ends.append(loss(*moved)[-1].array.item())
            assert leaf.gradient[cell] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-7)
