"""Graphs as kernels on tensors, whichever language can be built."""

from __future__ import annotations

import pytest

import noyau
from noyau.errors import BuildError, MissingExtraError, UnsupportedError

torch = pytest.importorskip("torch")

from noyau.builders import cc  # noqa: E402
from noyau.runtimes.torch import graphs  # noqa: E402

BUILD = graphs.build
pytestmark = pytest.mark.filterwarnings("error::noyau.ReferenceWarning")


def raising(error):
    def call(*_, **__):
        raise error

    return call


def slope():
    """The gradient of a new op at 3."""

    @noyau.op("float[n] -> float[n]")
    def squared(x):
        return x * x

    x = torch.full((2,), 3.0, requires_grad=True)
    return torch.autograd.grad(squared(x).sum(), x)[0].tolist()


def test_numba_serves_gradients_where_there_is_no_compiler(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(cc, "compile_library", raising(BuildError("no compiler here")))
    made = []
    monkeypatch.setattr(graphs, "build", lambda generated: made.append(generated.language) or BUILD(generated))
    assert slope() == [6, 6]
    assert made == ["c", "numba"]


@pytest.mark.parametrize("fault", [BuildError, UnsupportedError])
def test_where_neither_can_be_built_both_say_why(monkeypatch, fault):
    faults = iter([fault("no compiler here"), MissingExtraError("run: pip install 'noyau[numba]'")])
    monkeypatch.setattr(graphs, "build", lambda _: raising(next(faults))())
    with pytest.raises(fault, match=r"squared_backward cannot be built \(c: no compiler here; numba: run: pip install"):
        slope()
