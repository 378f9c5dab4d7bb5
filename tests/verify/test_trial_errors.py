"""Errors of a run that say nothing about the kernel."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import BuildError, OutputError, UnsupportedError
from noyau.kernels.reference import graph_of
from noyau.verify.failures import Case
from noyau.verify.trial import KernelTrial
from tests.kernels.written import op_of


def outcome(error):
    def kernel(inputs):
        raise error

    op = op_of("f32[n] -> f32[n]")
    graph = graph_of(op.description.reference, op.instance([DType.F32], [1]), {})
    return KernelTrial(graph, kernel, is_check=True).outcome(Case("case", (np.ones(3, np.float32),)), 0)


@pytest.mark.parametrize("error", [OutputError("no room on the disk"), UnsupportedError("no GPU")])
def test_what_noyau_lacks_is_no_fault_of_the_kernel(error):
    with pytest.raises(type(error), match=r"^no "):
        outcome(error)


def test_another_error_is_one():
    assert outcome(BuildError("refused")).failures[0].note == "ended with BuildError: refused"
