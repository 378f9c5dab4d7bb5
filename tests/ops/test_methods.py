from __future__ import annotations

import numpy as np
import pytest

import noyau
from noyau.errors import UnsupportedError
from noyau.ops.dispatch.calls import ReferenceWarning

X = np.array([[1, -2, 3], [-1, 2, 0.5]], np.float32)


class Layer:
    def __init__(self, weight: float) -> None:
        self.weight = np.full(3, weight, np.float32)
        self.is_linear = False

    def __call__(self, x):
        y = x * self.weight
        return y if self.is_linear else np.maximum(y, np.zeros(x.shape[-1], x.dtype))


class Model:
    size = 3

    def __init__(self) -> None:
        self.scale, self.layers, self.more = 2.0, [Layer(2), Layer(3)], {"bias": np.ones(3, np.float32)}
        self.rate, self.seen, self.count = np.float64(0.5), {1}, 0

    @property
    def twice(self):
        return 2 * self.scale

    @noyau.op
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x * self.twice + self.more["bias"]

    @noyau.op("f32[*batch, n] -> f32[*batch, n]")
    def signed(self, x, *, power=1):
        return (x * self.scale + self.more["bias"]) ** power

    @noyau.op
    def counted(self, x):
        self.count += 1
        return x

    @noyau.op
    def grown(self, x):
        self.layers.append(x)
        return x

    @noyau.op
    def added(self, x):
        self.more["bias"] += 1
        return x + self.more["bias"]

    @noyau.op
    def looked_up(self, x):
        return x * len(self.seen)

    @noyau.op
    def compared(self, x):
        return x if self.layers[0] == self.layers[1] else 2 * x

    @noyau.op
    def asked(self, x):
        return x if self.box else 2 * x

    @noyau.op
    def typed(self, x):
        return x if type(self.layers[0]) is Layer else 2 * x

    @noyau.op("f32[n] -> f32[n]")
    def dated(self, x):
        return x * len(self.more["bias"])


class Box:
    def __init__(self) -> None:
        self.cells = 3

    def __len__(self) -> int:
        return self.cells


def change(model: Model, number: int) -> None:
    """Change one thing that `forward` reads."""
    match number:
        case 0:
            model.scale = 3.0
        case 1:
            model.layers[0].weight += 1
        case 2:
            model.layers[1].is_linear = True
            model.layers.append(Layer(-1))
        case _:
            model.more["bias"] = np.zeros(3, np.float32)


def test_no_call_gives_what_an_object_was_before():
    model = Model()
    for number in range(-1, 4):
        if number >= 0:
            change(model, number)
        got, want = model.forward(X), Model.forward.function(model, X)
        assert got.dtype == want.dtype
        assert np.array_equal(got, want), number
    assert "runs c" in str(model.forward.explain(X))
    before = len(Model.forward.ops)
    change(model, 1)
    model.forward(X)
    assert len(Model.forward.ops) == before  # arrays are inputs
    assert np.array_equal(Model.forward(Model(), X), Model.forward.function(Model(), X))


def test_a_signed_method_takes_what_an_op_takes():
    model, out = Model(), np.empty_like(X)
    want = X * 2 + 1
    assert np.array_equal(model.signed(X), want)
    assert np.array_equal(model.signed(x=X), want)
    assert model.signed(X, out=out) is out
    assert np.array_equal(out, want)
    assert np.allclose(model.signed(X, power=2), want**2)
    assert repr(model.signed).startswith("<op Model.signed of <")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("counted", "it sets self.count, which an op does not"),
        ("grown", ".append of a list of the object is not traced"),
        ("added", "it fails with ValueError: output array is read-only"),
        ("looked_up", "self.seen is a set, of which an op sees no changes"),
        ("compared", "it compares self.layers[0]"),
        ("asked", "it asks whether self.box is true"),
        ("typed", "its result from what it reads of the object is not"),
    ],
)
def test_what_may_change_unseen_runs_as_it_is_written_with_one_warning(name, reason):
    model, like = Model(), Model()
    model.box = like.box = Box()
    with pytest.warns(ReferenceWarning) as caught:
        results = [getattr(model, name)(X), getattr(model, name)(X)]
    want = [getattr(Model, name).function(like, X) for _ in range(2)]
    assert np.array_equal(results, want)
    assert model.count == like.count
    assert len(caught) == 1
    assert reason in str(caught[0].message)
    assert caught[0].filename == __file__
    assert caught[0].filename == __file__


def test_an_array_of_a_dtype_that_is_not_here_is_told():
    model = Model()
    model.more["bias"] = np.zeros(3, "M8[s]")
    with pytest.raises(UnsupportedError, match="self_more_bias is of the dtype datetime64"):
        model.dated.explain(X[0])


def test_an_error_of_the_method_is_its_own():
    model = Model()
    model.layers = [3]
    with pytest.raises(TypeError, match="not callable"):
        model.forward(X)
