from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from tests.frontends.numpy.traces import agrees, traced_only, x


def test_an_array_of_its_own_may_be_changed_in_place():
    def softmax(a):
        e = np.exp(a - a.max(-1, keepdims=True))
        e /= e.sum(-1, keepdims=True)
        np.add(e, 1, out=e)
        return e

    agrees(softmax, x(3, 4))


def test_what_is_changed_is_seen_under_each_of_its_names():
    def twice(a):
        b = a + 1
        c = b
        b *= 2
        return b + c

    agrees(twice, x(3, 4))


def test_an_array_tells_of_itself():
    def told(a):
        assert (a.ndim, a.dtype, len(a.shape)) == (2, np.float32, 2)
        return a.T.T

    agrees(told, x(3, 4))


def test_what_has_a_known_extent_can_be_gone_through():
    agrees(lambda a: sum(row.sum() for row in np.stack([a, a])), x(3, 4))
    agrees(lambda a: a * len(np.stack([a, a])), x(3, 4))


def change(a):
    a += 1
    return a


def change_through_a_view(a):
    b = a + 1
    row = b[0]
    b += 1
    return b + row


def change_dtype(a):
    b = a > 0
    np.add(a, 1, out=b)
    return a


def assign(a):
    b = a + 1
    b[0] = 3
    return b


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (change, "it writes into an array that others see, an argument or a view; assign the result"),
        (change_through_a_view, "it writes into an array that others see"),
        (change_dtype, r"what is written in place is f32\[s2, s3\], and does not fit"),
        (assign, "it writes into an array; make a new one, with np.where or np.concatenate"),
        (lambda a: a if a.sum() > 0 else -a, "it asks for the number in an array, which is only known when it runs"),
        (lambda a: a * float(a[0, 0]), "it asks for the number"),
        (lambda a: np.float32(a[0, 0]) * a, "it asks for the number"),
        (lambda a: a * a[0, 0].item(), "it asks for the number"),
        (lambda a: np.asarray(a), "it asks for the number"),
        (lambda a: a * len(a), "len.. is asked of an extent s2, which has no number yet; use .shape"),
        (lambda a: a if a.shape[0] > 3 else -a, "s2 is compared, and it has no number yet"),
        (lambda a: a * range(a.shape[0])[0], "s2 is asked for its number, and it has none yet"),
        (lambda a: a.real, "the method .real of an array is not among those that are traced"),
    ],
)
def test_what_is_not_traced(function, told):
    with pytest.raises(UnsupportedError, match=told):
        traced_only(function, x(2, 3))
