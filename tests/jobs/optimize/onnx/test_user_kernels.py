"""One's own kernel in a model: a right one goes in, a bad one is told, and the model is unharmed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from noyau.errors import InputError
from noyau.hosts.onnxruntime import runs, sessions
from noyau.hosts.onnxruntime.source_model import open_model
from noyau.hosts.onnxruntime.subgraph import cut_of
from noyau.jobs.cli import main
from noyau.jobs.optimize.onnx import kernel_timing, user_kernels
from noyau.jobs.optimize.onnx.options import OptimizeOptions
from noyau.jobs.optimize.onnx.run import optimize
from noyau.jobs.optimize.onnx.user_kernels import user_kernels_of
from noyau.ops.op_files import load_op
from tests.jobs.extract.files import REFERENCE, RIGHT, embedded, normed, written
from tests.small_models import arrays_for, timed_as
from tests.small_models import written as model_file

pytestmark = pytest.mark.usefixtures("lasting_workers")


@pytest.fixture
def model(tmp_path):
    return model_file(normed(), tmp_path)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    monkeypatch.setattr(user_kernels, "PATIENCE_S", 2.0)


def quick(model, *ops, **wishes):
    return optimize(model, OptimizeOptions(ops=ops, keep="all", budget_s=0.01, dims={"rows": 3}, **wishes))


def answers(model):
    return runs.run(sessions.open_session(model), arrays_for(normed()))


def test_a_right_kernel_goes_into_every_place_of_its_path(model, tmp_path):
    made = quick(model, written(tmp_path))
    first = made.candidates[0]
    assert first.kept, first.reason
    assert first.certificate.ok and first.certificate.captured
    assert (len(first.planned.groups), first.planned.operator.rpartition("_")[0]) == (2, "norm")
    made.save(tmp_path / "fused.onnx")
    fused = onnx.load(tmp_path / "fused.onnx")
    assert [node.op_type for node in fused.graph.node].count(first.planned.operator) == 2
    got = runs.run(made.session(), arrays_for(normed()))["y"]
    assert np.allclose(got, answers(model)["y"], 1e-5, 1e-6)
    plain = runs.run(sessions.open_session(tmp_path / "fused.onnx"), arrays_for(normed()))["y"]
    assert np.array_equal(plain, answers(model)["y"])  # without the library the bodies run


def test_its_source_has_its_certificate_and_the_author_s_lines(model, tmp_path):
    made = quick(model, written(tmp_path))
    text = made.source(made.candidates[0].planned.operator)
    assert "written by hand" in text
    assert "certificate: right on" in " ".join(text.split())
    assert "const float root = sqrtf(total / 6 + eps);" in text


def test_the_name_follows_the_text_and_the_target(model, tmp_path):
    original, names = open_model(model), []
    for body, target in ((RIGHT, "x86-64-v3"), (f"{RIGHT}\n", "x86-64-v3"), (RIGHT, "x86-64-v2"), (RIGHT, "x86-64-v3")):
        names.append(user_kernels_of(original, [written(tmp_path, body)], target)[0].operator)
    assert len(set(names)) == 3
    assert names[0] == names[3]


def test_what_is_around_it_is_still_cut_into_groups(model, tmp_path):
    original = open_model(model)
    (own,) = user_kernels_of(original, [product(tmp_path, "product")], "x86-64-v3")
    positions = frozenset(own.groups[0].positions)
    assert positions == {7}
    cut = cut_of(original, None, positions)
    assert positions.isdisjoint(position for group in cut.groups for position in group.positions)
    assert len(cut.groups) == 2


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (RIGHT.replace(" + eps", ""), "wrong at n["),
        pytest.param("*(volatile float *)0 = 1;", "crashed (SIGSEGV)", marks=pytest.mark.as_shipped),
        ("for (volatile int i = 0;;) i++;", "did not answer within 2 s and was ended"),
        (f"{RIGHT} s[rows * 6] = 1;", "wrote outside output 0, 1 cells after its end"),
        (f"{RIGHT} s[-1] = 1;", "wrote outside output 0, 1 cells before its start"),
        (f"{RIGHT} if (rows) ((float *)a)[0] += 1;", "changed its input 0"),
        (RIGHT.replace("i < rows", "i + 1 < rows"), "never wrote 6 cells of output 0"),
        ("this is no C;", "does not build: "),
    ],
    ids=[
        "eps forgotten",
        "null pointer",
        "endless",
        "beyond the end",
        "before the start",
        "mutates",
        "no tail",
        "no C",
    ],
)
def test_a_bad_kernel_is_left_out_and_told_and_the_model_is_unharmed(model, tmp_path, body, told):
    made = quick(model, written(tmp_path, body))
    first = made.candidates[0]
    assert not first.kept
    assert told in first.reason
    assert told.split(" (")[0] in str(made.report.kernels[0].reason)
    assert first.planned.operator not in [node.op_type for node in made.model.graph.node]
    got = runs.run(made.session(), arrays_for(normed()))["y"]
    assert np.allclose(got, answers(model)["y"], 1e-5, 1e-6)


def test_a_slow_kernel_is_left_out_and_told(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(kernel_timing.OnnxBench, "compare", lambda *given: timed_as(0.5)(*given))
    assert main(["optimize", str(model), "--with", written(tmp_path), "--dim", "rows=3"]) == 0
    told = capsys.readouterr().out
    assert "0 of 1 kernel kept" in told
    assert "SLOWER" in told


PRODUCT = """\
import noyau

BETWEEN = (["n"], ["r2"])


@noyau.op("f32[rows, 6], f32[6, 6] -> f32[rows, 6]")
def product(a, m):
    return a @ m


product.kernel("product.c", entry="ENTRY")
"""
PRODUCT_IN_C = """\
#include <stdint.h>

void ENTRY(const float *a, const float *m, float *out, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++)
        for (int k = 0; k < 6; k++) {
            float total = 0;
            for (int j = 0; j < 6; j++) total += a[i * 6 + j] * m[j * 6 + k];
            out[i * 6 + k] = total;
        }
}
"""


def product(folder, entry: str) -> str:
    """product.py and product.c, for a MatMul."""
    (folder / "product.py").write_text(PRODUCT.replace("ENTRY", entry))
    (folder / "product.c").write_text(PRODUCT_IN_C.replace("ENTRY", entry))
    return f"{folder / 'product.py'}::product"


def test_a_product_of_one_s_own_takes_the_place_of_the_library_s(model, tmp_path):
    made = quick(model, written(tmp_path), product(tmp_path, "product"))
    assert [one.kept for one in made.candidates] == [True, True], [one.reason for one in made.candidates]
    assert "MatMul" not in [node.op_type for node in made.model.graph.node]
    got = runs.run(made.session(), arrays_for(normed()))["y"]
    assert np.allclose(got, answers(model)["y"], 1e-5, 1e-6)


def test_two_kernels_with_a_function_of_one_name_are_refused(model, tmp_path):
    told = (
        r"product_\w+ does not go into one library with the others: another op defines norm too; make its functions st"
    )
    with pytest.raises(InputError, match=told):
        quick(model, written(tmp_path), product(tmp_path, "norm"))


def test_an_op_itself_is_taken_and_its_last_kernel(model, tmp_path):
    op = load_op(written(tmp_path))
    op.kernel(op.source("norm").replace("void norm(", "void again("), language="c", entry="again")
    (own,) = user_kernels_of(open_model(model), [op], "x86-64-v3")
    assert "void again(" in own.text
    assert len({position for group in own.groups for position in group.positions}) == 14


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        (REFERENCE.replace('BETWEEN = (["a", "r"], ["s", "n"])', ""), "norm does not say where it lies in the model"),
        (REFERENCE.replace('(["a", "r"], ["s", "n"])', '["a", 3]'), "norm does not say where it lies in the model"),
        (REFERENCE.replace('["s", "n"])', '["s", 3])'), "norm does not say where it lies in the model"),
        (REFERENCE.replace('["s", "n"]', '["s", "nonsense"]'), "the model has no value nonsense"),
        (REFERENCE.replace('norm.kernel("norm.c")', ""), r"norm has no kernel in C \(its kernels: none\)"),
        (REFERENCE.replace('"norm.c"', '"norm.c", options={"flags": ["-O1"]}'), "asks for flags"),
        (REFERENCE.replace("f32[6] ->", "f32[6, 1] ->"), "norm does not fit its path, which reads a: f32 of rank 2,"),
    ],
)
def test_an_op_that_cannot_be_put_in_is_refused(model, tmp_path, reference, told):
    with pytest.raises(InputError, match=told):
        quick(model, written(tmp_path, reference=reference))


def test_results_that_are_not_the_path_s_are_refused(model, tmp_path):
    other = REFERENCE.replace("-> s: f32[rows, 6], n", "-> s: f32[rows], n")
    with pytest.raises(
        InputError, match="it gives f32 of rank 1, f32 of rank 2, and the path makes f32 of rank 2, f32"
    ):
        quick(model, written(tmp_path, reference=other))


def test_two_ops_for_one_place_are_refused(model, tmp_path):
    op = written(tmp_path)
    with pytest.raises(InputError, match=r"norm and norm both want to replace Add#0: leave one out"):
        quick(model, op, op)


def test_a_file_or_op_that_is_not_there_is_refused(model, tmp_path):
    written(tmp_path)
    with pytest.raises(InputError, match="there is no file"):
        quick(model, "nonsense.py::norm")
    with pytest.raises(InputError, match="has no op 'nonsense'"):
        quick(model, f"{tmp_path / 'norm.py'}::nonsense")


def test_indices_beyond_their_table_are_the_kernel_s_to_refuse(tmp_path):
    reference = """\
import noyau
import numpy as np

BETWEEN = (["ids"], ["y"])


@noyau.op("i64[batch, n], f32[5, 6] -> f32[batch, n, 6]")
def look(ids, table):
    return np.sin(table[ids])


look.kernel("norm.c", entry="look")
"""
    text = """
#include <math.h>
#include <stdint.h>
int32_t look(const int64_t *ids, const float *table, float *out, int64_t batch, int64_t n)
{
    for (int64_t i = 0; i < batch * n; i++) {
        const int64_t at = ids[i] < 0 ? ids[i] + 5 : ids[i];
        if (at < 0 || at >= 5) return 1;
        for (int k = 0; k < 6; k++) out[i * 6 + k] = sinf(table[at * 6 + k]);
    }
    return 0;
}
"""
    written(tmp_path, reference=reference)
    (tmp_path / "norm.c").write_text(text)
    model = model_file(embedded(), tmp_path)
    made = optimize(
        model, OptimizeOptions(ops=[f"{tmp_path / 'norm.py'}::look"], keep="all", budget_s=0.01, dims={"n": 9})
    )
    assert made.candidates[0].kept, made.candidates[0].reason
