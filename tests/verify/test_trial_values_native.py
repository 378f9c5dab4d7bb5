from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest

from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.c.library import Native
from noyau.verify.adversarial import cases
from noyau.verify.trial import PIECES, PieceRuns, certify_native
from tests.jobs.check.groups import F32, Group

HEADER = files("noyau").joinpath("codegen", "c", "noyau.h").read_text(encoding="ascii")

# out[r] = the sum over c of x[r, c], in double.
KERNEL = """
static int32_t bind(const int64_t *const *shapes, int64_t *sizes) {
    sizes[0] = shapes[0][0], sizes[1] = shapes[0][1];
    return 0;
}
static void shape(const int64_t *sizes, int32_t output, int64_t *dims) { dims[0] = sizes[0]; }
static int64_t scratch_bytes(const int64_t *sizes, int32_t index) { return 0; }
static int64_t extent(const int64_t *sizes, int32_t launch) { return sizes[0]; }
static int64_t item_bytes(const int64_t *sizes, int32_t launch) { return 4 * sizes[1]; }
static int32_t run(const noyau_call *call, int64_t begin, int64_t end) {
    float *x = call->buffers[0], *out = call->buffers[1];
    const int64_t rows = call->sizes[0], columns = call->sizes[1];
    (void)rows;
    for (int64_t r = begin; r < end; r++) {
        double total = 0;
        for (int64_t c = 0; c < columns; c++) total += x[r * columns + c];
        out[r] = (float)total;
        FAULT
    }
    return NOYAU_OK;
}
static const int32_t dtypes[] = {1, 1}, ranks[] = {2, 1};
NOYAU_EXPORT const noyau_kernel sums_kernel = {
    "sums", 1, 1, 0, 1, 2, dtypes, ranks, bind, shape, scratch_bytes, extent, item_bytes, run,
};
"""


def graph():
    g = Group()
    x = g.input("x", F32, "rows", "n")
    g.reduce("sum", x)
    return g.graph(g.nodes[-2].output)


def certificate(fault: str = "", **how):
    native = Native(c_compiler.compile_library([HEADER + KERNEL.replace("FAULT", fault)]), "sums_kernel")
    trials = cases(graph(), {"rows": 9, "n": 20}, np.random.default_rng(0))
    return certify_native(graph(), native, trials, name="sums[c]", made_up=True, **how)


def test_a_right_kernel_is_certified_as_independent_of_its_pieces():
    found = certificate()
    found.raise_if_bad()
    assert found.order_independent is True
    assert found.made_up
    assert found.to_json()["order_independent"] is True
    assert found.kernel.worst_relative <= found.unfused.worst_relative


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("if (r == rows - 1) out[r + 1] = 0;", "sums wrote outside output 0"),
        ("if (r == 0) x[0] = 0;", "sums changed its input 0"),
        ("if (r == rows / 2) out[r] = 1e-3f + out[r] * 1.001f;", "is wrong at"),
    ],
)
def test_a_kernel_that_does_wrong_is_refused(fault, reason):
    found = certificate(fault)
    assert not found.ok
    assert any(reason in f"sums[c] is {failure}" for failure in found.failures)


def test_a_cell_that_is_not_written_is_refused():
    found = certificate("").ok, certificate("} for (int64_t r = begin + 1; r < begin; r++) {").ok
    assert found == (True, True)
    skipping = KERNEL.replace("out[r] = (float)total;", "if (r != 4) out[r] = (float)total;")
    native = Native(c_compiler.compile_library([HEADER + skipping.replace("FAULT", "")]), "sums_kernel")
    trials = cases(graph(), {"rows": 9, "n": 20}, np.random.default_rng(0))
    found = certify_native(graph(), native, trials, name="sums[c]")
    assert "sums never wrote 1 cells of output 0; the first is [4]" in found.summary()


def test_bits_that_depend_on_where_a_piece_begins_are_refused():
    found = certificate("if (r == begin && r > 0) out[r] *= 1.0f + 1.2e-7f;")
    assert found.order_independent is False
    assert not found.ok
    assert found.worst_ratio < 4  # its values alone would pass
    assert "its bits depend on how its work is cut" in found.summary()


def test_bits_may_differ_where_threads_merge_in_any_order():
    found = certificate("if (r == begin && r > 0) out[r] *= 1.0f + 1.2e-7f;", is_deterministic=False)
    assert found.ok
    assert found.order_independent is None
    wrong = certificate("if (r == begin && r > 0) out[r] *= 1.1f; else out[r] *= 1.01f;", is_deterministic=False)
    assert not wrong.ok


def test_a_kernel_runs_whole_and_in_pieces_from_the_last():
    class Recorder:
        def __init__(self):
            self.calls = []

        def call_guarded(self, *arrays, pieces=1, order=range):
            self.calls.append((pieces, list(order(pieces))))
            return [arrays[0].copy()]

    recorder = Recorder()
    runs = PieceRuns(recorder)
    assert runs([np.ones(3)])[0].tolist() == [1, 1, 1]
    assert recorder.calls == [(1, [0]), (PIECES, [2, 1, 0])]
    assert runs.is_deterministic
