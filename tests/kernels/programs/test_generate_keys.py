from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import noyau
from noyau.compiler.lowering.input_layouts import INNER, PACKED, STRIDED, Layout, Order
from noyau.kernels.programs.generate import Once, constants_key, fit_layouts, key_of, specialization_of
from noyau.signatures.instances import bind
from tests.ops.dispatch.ops import numbers, softmax_op


def key(op, *arrays, **constants):
    bound = bind(op.signature, arrays, {}, op.name)
    return key_of(specialization_of(op.signature, bound, constants))


def test_calls_that_differ_in_sizes_alone_are_of_one_key():
    op = softmax_op()
    assert key(op, numbers(3, 4)) == key(op, numbers(1, 9))


@pytest.mark.parametrize(
    "other",
    [
        numbers(3, 4).astype(np.float64),
        numbers(2, 3, 4),
        numbers(4, 3).T,
        numbers(3, 8)[:, :4],
        numbers(3, 8)[:, ::2],
    ],
    ids=["dtype", "rank", "permuted", "inner", "strided"],
)
def test_what_tells_keys_apart(other):
    op = softmax_op()
    assert key(op, numbers(3, 4)) != key(op, other)


def test_constants_tell_keys_apart_by_type_and_bits():
    different = [1, 1.0, True, -0.0, 0.0, math.nan, "1", (1, 2), np.float32(1), np.array([1]), np.array([1.0])]
    keys = [constants_key({"c": value}) for value in different]
    assert len(set(keys)) == len(different)
    assert constants_key({"a": 1, "b": 2}) == constants_key({"b": 2, "a": 1})
    assert constants_key({"c": [1, 2]}) == constants_key({"c": [1, 2]})
    assert constants_key({"c": math.nan}) == constants_key({"c": math.nan})


def test_an_integer_that_gives_a_dim_is_in_the_key():
    @noyau.op("f32[n], i64 -> f32[k]")
    def first(x, k):
        return x[:k]

    assert key(first, numbers(4), 2) != key(first, numbers(4), 3)


def test_arrays_that_no_kernel_reads_are_copied():
    unaligned = np.zeros(17, np.int8)[1:].view(np.float32)
    strided, inner, turned = numbers(8)[::2], numbers(3, 8)[:, :4], numbers(4, 3).T
    layouts = [PACKED, STRIDED, INNER, Layout(Order.PERMUTED, (1, 0))]
    copied, *same = fit_layouts([unaligned, strided, inner, turned], layouts)
    assert copied.flags.aligned
    assert [a is b for a, b in zip(same, [strided, inner, turned], strict=True)] == [True] * 3
    (packed,) = fit_layouts([inner], [PACKED])
    assert packed.flags.c_contiguous


def test_devices_have_keys_of_their_own():
    op = softmax_op()
    bound = bind(op.signature, [numbers(3, 4)], {}, op.name)
    keys = {key_of(specialization_of(op.signature, bound, {}, device)) for device in ("cpu", "cuda:0", "cuda:1")}
    assert len(keys) == 3


def test_what_is_made_once_a_key_is_made_by_one_thread():
    once, found, made, begun = Once(), {}, [], threading.Barrier(4)

    def make(key):
        def now():
            made.append(key)
            time.sleep(0.01)
            found[key] = f"{key} found"
            return found[key]

        return now

    def call(key):
        begun.wait()
        return once.value(key, lambda: found.get(key), make(key))

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(call, "aabb")) == ["a found", "a found", "b found", "b found"]
    assert sorted(made) == ["a", "b"]


def test_what_fails_is_made_again():
    once, made = Once(), []

    def fails():
        made.append(1)
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            once.value("a", lambda: None, fails)
    assert len(made) == 2
