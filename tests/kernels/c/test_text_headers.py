from __future__ import annotations

import numpy as np
import pytest

import noyau
from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.kernels.c.text import c_flags, require_plain_build
from noyau.kernels.call import library_of
from noyau.kernels.trust import is_checked, remember
from tests.kernels.written import op_of, written

TEXT = '#include "own/factor.h"\nvoid f(const float *x, float *out, long n) { LOOP out[i] = FACTOR * x[i]; }\n'
FACTOR = '#pragma once\n#include "loop.h"\n#include <math.h>\n#define FACTOR 1.0f\n'
LOOP = '#include "factor.h"\n#define LOOP for (long i = 0; i < n; ++i)\n'


@pytest.fixture
def op(tmp_path, empty_cache):
    (tmp_path / "own").mkdir()
    written(tmp_path / "own", "factor.h", FACTOR)
    written(tmp_path / "own", "loop.h", LOOP)
    op = op_of("f32[n] -> f32[n]")
    op.kernel(written(tmp_path, "f.c", TEXT))
    op.kernel(
        written(tmp_path, "g.c", TEXT.replace('"own/factor.h"', "<factor.h>")),
        options={"flags": [f"-I{tmp_path}/own"]},
        name="g",
    )
    return op


def test_a_kernel_with_headers_beside_it_is_checked_and_runs(op):
    assert noyau.check(op, generated=False, budget_s=0.1).ok
    x = np.arange(5, dtype=np.float32)
    assert op(x).tolist() == x.tolist()


@pytest.mark.parametrize("name", ["f", "g"])
def test_with_another_header_it_is_another_kernel(op, tmp_path, name):
    kernel, before, instance = op.kernels[name], c_flags(op.kernels[name]), op.instance([DType.F32], [1])
    library_of(kernel, instance, {})
    remember(kernel, op.description.reference, [instance], {})
    assert is_checked(kernel, op.description.reference, instance)
    written(tmp_path / "own", "loop.h", LOOP.replace("i = 0", "i = 1"))
    assert c_flags(kernel) != before
    assert not is_checked(kernel, op.description.reference, instance)
    again = op_of("f32[n] -> f32[n]")
    again.kernel(str(tmp_path / f"{name}.c"), options=kernel.usage.options, name=name)
    first, second = (library_of(each.kernels[name], instance, {})[0] for each in (op, again))
    assert first != second


def test_no_model_takes_it(op):
    with pytest.raises(InputError, match=r"op\[f\] includes files of its own, and a model has one text"):
        require_plain_build(op.kernels["f"])


@pytest.mark.parametrize("text", [TEXT, TEXT.replace('"own/factor.h"', "<math.h>")])
def test_what_is_not_there_or_the_system_s_is_the_compiler_s(tmp_path, text):
    op = op_of("f32[n] -> f32[n]")
    op.kernel(written(tmp_path, "f.c", text))
    assert c_flags(op.kernels["f"]) == ()
