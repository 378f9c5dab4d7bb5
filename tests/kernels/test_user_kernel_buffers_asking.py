from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import SignatureError
from noyau.kernels.user_kernel import ask, requested_names


def test_a_function_gets_what_it_asks_for():
    assert ask(lambda n, x: (x, n), {"x": 1, "n": 2, "m": 3}, "args=") == (1, 2)
    assert ask(lambda: 5, {"x": 1}, "args=") == 5


def test_a_default_stands_where_nothing_is_offered():
    assert ask(lambda x, grid=7: (x, grid), {"x": 1}, "args=") == (1, 7)
    assert requested_names(lambda x, *, grid=7: x, ["x", "grid"], "args=") == ("x", "grid")


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda z: z, "args= asks for z; there are x, n"),
        (lambda *z: z, r"args= takes \*z; it gets what it asks for by the name of each parameter"),
        (lambda **z: z, r"args= takes \*\*z"),
        (np.add, "args= takes|of which the parameters cannot be told"),
    ],
)
def test_what_cannot_be_given(function, told):
    with pytest.raises(SignatureError, match=told):
        ask(function, {"x": 1, "n": 2}, "args=")
