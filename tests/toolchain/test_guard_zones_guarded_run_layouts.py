from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from noyau.dtypes import from_numpy
from noyau.errors import CheckError
from noyau.kernels.call import FunctionKernel
from noyau.toolchain.guard_zones import LAYOUTS, contiguous
from tests.kernels.written import op_of


@pytest.mark.parametrize("layout", [contiguous, *LAYOUTS.values()])
def test_the_view_has_the_cells_of_the_array_in_memory_that_is_guarded(layout):
    for shape in [(), (3,), (4, 5), (2, 1, 3), (0, 3), (3, 0)]:
        for dtype in [np.float32, np.bool_, ml_dtypes.bfloat16]:
            array = np.random.default_rng(2).integers(0, 9, shape).astype(dtype)
            memory, view = layout("x", array, from_numpy(array.dtype))
            assert view.dtype == array.dtype
            assert np.array_equal(view, array)
            assert view.size == 0 or np.may_share_memory(view, memory.around)
            memory.refuse_writes("k")


def test_each_lies_as_its_name_says():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    strides = {name: layout("x", array, from_numpy(array.dtype))[1].strides for name, layout in LAYOUTS.items()}
    assert strides == {
        "transposed": (4, 12),
        "sliced": (32, 8),
        "offset": (20, 4),
        "flipped": (-16, -4),
        "expanded": (16, 4),
    }
    equal = np.ones((3, 4), np.float32)
    view = LAYOUTS["expanded"]("x", equal, from_numpy(equal.dtype))[1]
    assert view.strides == (0, 0)
    assert not view.flags.writeable


def test_what_lies_between_the_cells_may_not_be_written():
    def between(x, out):
        out[...] = x
        np.lib.stride_tricks.as_strided(x, (2,), (4,))[1] = 0

    op = op_of("f32[n] -> f32[n]")
    op.kernel(between)
    kernel = FunctionKernel(op.kernels["between"], _instance(op), {}, "sliced")
    with pytest.raises(CheckError, match="changed its input x"):
        kernel.call_guarded(np.ones(4, np.float32))


def _instance(op):
    return op.instance([from_numpy(np.dtype(np.float32))], [1])
