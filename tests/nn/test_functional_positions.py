from __future__ import annotations

import numpy as np
import pytest

from noyau import nn
from noyau.errors import SignatureError


def given(tables, heads=3, n=5, d=8):
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal(shape).astype(np.float32) for shape in ((2, heads, n, d), (*tables, n, d), (*tables, n, d))
    ]


@pytest.mark.parametrize("tables", [(1,), (2, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.filterwarnings("error::noyau.ReferenceWarning")
def test_tables_are_broadcast(tables, interleaved):
    x, cos, sin = given(tables)
    wide = [np.broadcast_to(table, x.shape) for table in (cos, sin)]
    found = nn.rope(x, cos, sin, interleaved=interleaved)
    np.testing.assert_allclose(found, nn.rope.reference(x, *wide, interleaved=interleaved), rtol=1e-5, atol=1e-6)


def test_the_length_of_a_pair_stays():
    x, *_ = given(())
    angles = np.tile(np.random.default_rng(1).random((5, 4)), 2)
    turned = nn.rope(x, *(f(angles).astype(np.float32) for f in (np.cos, np.sin)))
    np.testing.assert_allclose(np.hypot(turned[..., :4], turned[..., 4:]), np.hypot(x[..., :4], x[..., 4:]), rtol=1e-5)


def test_a_turn_back_gives_what_was():
    x, *_ = given(())
    angles = np.tile(np.random.default_rng(1).random((5, 4)), 2)
    cos, sin = (f(angles).astype(np.float32) for f in (np.cos, np.sin))
    np.testing.assert_allclose(nn.rope(nn.rope(x, cos, sin), cos, -sin), x, rtol=1e-4, atol=1e-6)


def test_an_odd_width_is_refused():
    with pytest.raises(SignatureError, match=r"rope: .* f32.*7.* does not fit"):
        nn.rope(*given((), d=7))


@pytest.mark.filterwarnings("ignore::noyau.ReferenceWarning")
def test_tables_that_cannot_be_broadcast_are_refused():
    with pytest.raises(ValueError, match="operands could not be broadcast"):
        nn.rope(*given((2,)))
