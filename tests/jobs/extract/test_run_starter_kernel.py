"""The kernel to begin with: what its pieces are, and that it is right in any order of them."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

import noyau
from noyau.jobs.extract.run import extract, start_of
from noyau.kernels.call import library_of
from noyau.ops.op_files import load_op
from noyau.signatures.instances import bind
from noyau.toolchain.c.library import Native
from tests.jobs.extract.files import ENDS, embedded, normed
from tests.small_models import NODE, model_of, value, written


def summed(name: str = "x") -> onnx.ModelProto:
    """All cells of a matrix in one number: two launches."""
    nodes = [NODE("Mul", [name, name], ["square"]), NODE("ReduceSum", ["square"], ["y"], keepdims=0)]
    return model_of(nodes, [value(name, ("rows", 6))], [value("y", ())])


def spread(name: str = "x", rows: str = "rows") -> onnx.ModelProto:
    """exp(x), upside down: the first axis of the result is the last of x."""
    nodes = [NODE("Exp", [name], ["e"]), NODE("Transpose", ["e"], ["y"], perm=[1, 2, 0])]
    return model_of(nodes, [value(name, (rows, 3, 4))], [value("y", (3, 4, rows))])


def start(model, ends) -> tuple[str, str]:
    found = extract(model, ends)
    return start_of(found.graph, found.write("path"))


@pytest.mark.parametrize(
    ("model", "ends", "launch"),
    [
        (normed, ENDS, ""),
        (embedded, "ids:y", "lambda batch, n: batch * n"),
        (spread, "x:y", "lambda rows: (rows + 15) // 16"),
        (lambda: spread("begin", "end"), "begin:y", "lambda v_end: (v_end + 15) // 16"),
        (summed, "x:y", None),
    ],
)
def test_where_one_launch_does_all_it_is_called_for_pieces(model, ends, launch, tmp_path):
    text, launch_of_op = start(written(model(), tmp_path), ends)
    takes = re.search(r"int32_t path\((.*?)\)", text, re.DOTALL)[1]
    assert ("int64_t begin" in takes and "int64_t end" in takes) is (launch is not None)
    assert launch_of_op == (launch or "")
    if launch is not None:
        assert not re.search(r"_(bind|extent|scratch_bytes)\(", text)
    else:
        assert "path_generated_extent(sizes, launch)" in text


@pytest.mark.parametrize(("model", "ends"), [(normed, ENDS), (embedded, "ids:y"), (spread, "x:y"), (summed, "x:y")])
def test_it_is_right_in_any_order_of_its_pieces(model, ends, tmp_path):
    extract(written(model(), tmp_path), ends).save(tmp_path / "path.py")
    op = load_op(str(tmp_path / "path.py"))
    arrays = op.make()
    with noyau.reference():
        want = op(*arrays)
    bound = bind(op.signature, arrays, op.known_sizes(dict(op.description.reference.constants)), op.name)
    kernel = Native(*library_of(op.kernels["path"], bound.instance, dict(op.description.reference.constants)))
    for threads in (1, 2):
        found = kernel(*bound.arrays, pieces=5, order=lambda count: reversed(range(count)), threads=threads)
        for got, one in zip(found, want if isinstance(want, tuple) else [want], strict=True):
            assert np.allclose(got, one, 1e-5)
