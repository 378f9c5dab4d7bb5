from __future__ import annotations

import math

import numpy as np
import pytest

from noyau import nn
from noyau.errors import InputError, SignatureError

ENDS = np.float32([-np.inf, -1e30, -100, 0, 100, 1e30, np.inf])


def test_far_from_zero_activations_are_their_limits():
    ends = np.where(ENDS > 0, ENDS, 0)
    for found in (nn.gelu(ENDS[1:]), nn.silu(ENDS[1:]), nn.gelu(ENDS[1:], approximate="tanh")):
        np.testing.assert_allclose(found, ends[1:], atol=1e-40)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_a_gate_is_its_activation_times_the_other(approximate):
    x, y = np.random.default_rng(0).standard_normal((2, 50)).astype(np.float32)
    np.testing.assert_allclose(nn.geglu(x, y, approximate=approximate), nn.gelu(x, approximate=approximate) * y, 1e-6)
    np.testing.assert_allclose(nn.swiglu(x, y), nn.silu(x) * y, 1e-6)


def test_the_two_forms_of_gelu_are_not_the_same():
    assert nn.gelu(np.float64(-2)) == pytest.approx(-2 * math.erfc(math.sqrt(2)) / 2, rel=1e-12)
    assert nn.gelu(np.float64(-2), approximate="tanh") != pytest.approx(nn.gelu(np.float64(-2)), rel=1e-4)


@pytest.mark.filterwarnings("ignore::noyau.ReferenceWarning")
@pytest.mark.parametrize("op", [nn.gelu, nn.geglu], ids=lambda op: op.name)
def test_another_approximation_is_refused(op):
    inputs = [np.zeros(3, np.float32)] * len(op.signature.inputs)
    with pytest.raises(InputError, match="gelu: approximate is 'fast'; there are 'none' and 'tanh'"):
        op(*inputs, approximate="fast")


def test_a_gate_of_another_shape_is_refused():
    with pytest.raises(SignatureError, match=r"swiglu: .* up: f32\[4\] does not fit"):
        nn.swiglu(np.zeros(3, np.float32), np.zeros(4, np.float32))
