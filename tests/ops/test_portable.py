import copy
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import noyau
from noyau.errors import UnsupportedError
from noyau.ops import portable
from noyau.ops.op import _TRAVELLED

FACTOR = 3.0


def helper(x):
    return x * FACTOR


@noyau.op("f64[n] -> f64[n]")
def tripled(x):
    """With a helper, in this module."""
    return helper(x)


def closing_over(c):
    @noyau.op("f64[n] -> f64[n]", inputs=lambda rng, n=7: rng.normal(size=n))
    def inner(x, *, k=c):
        def deep(y):
            return y + c

        return deep(x) * k

    return inner


PAIR = noyau.op("f64[n] -> f64[n]", name="more")(lambda x: x + 1), noyau.op("f64[n] -> f64[n]")(lambda x: x - 1)
ROWS = "void twice(const double *x, double *out, long n) { for (long i = 0; i < n; ++i) out[i] = 2 * x[i]; }"


@noyau.reduction
class Total:
    """A class whose methods read this module."""

    scale = 2.0

    def __init__(self, more=1.0):
        self.more = more

    @property
    def factor(self):
        return helper(self.scale) * self.more

    @staticmethod
    def zero():
        return 0.0

    def step(self, state, x):
        return state + x.sum()

    def merge(self, a, b):
        return a + b

    def finish(self, state):
        return super().finish(state) if self.more < 0 else state * self.factor


def made_again(value):
    """The value in a process that has none of this module's ops."""
    content = pickle.dumps(value)
    _TRAVELLED.clear()
    return pickle.loads(content)


def test_an_op_is_made_of_its_text_once():
    x = np.arange(3.0)
    twice = noyau.op("f64[n] -> f64[n]", name="twice")(lambda x: 2 * x)
    twice.kernel(ROWS, language="c")
    for op in (tripled, closing_over(5.0), *PAIR, twice):
        again = made_again(op)
        assert again is not op and again.name == op.name and str(again.signature) == str(op.signature)
        assert np.array_equal(again(x), op.reference(x)) and list(again.kernels) == list(op.kernels)
        assert pickle.loads(pickle.dumps(again)) is again and again.payload == op.payload
        assert again.__dask_tokenize__() == op.__dask_tokenize__() != tripled.name
        assert again.make(0)[0].shape == op.make(0)[0].shape
    assert copy.deepcopy([tripled])[0] is copy.copy(tripled) is tripled
    assert closing_over(5.0).__dask_tokenize__() != closing_over(6.0).__dask_tokenize__()


def test_a_reduction_is_made_of_its_methods():
    again = made_again(Total(2.0))
    assert type(again) is not Total and again.name == "Total" and again.over(np.ones(4)) == Total(2.0).over(np.ones(4))


def test_ops_of_main_go_to_another_process(tmp_path):
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""
        import pickle, subprocess, sys
        import noyau
        OFFSET = 4.0
        @noyau.op("f64[n] -> f64[n]")
        def shifted(x):
            return x + OFFSET
        code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).reference(1.0))"
        print(subprocess.run([sys.executable, "-c", code], input=pickle.dumps(shifted), capture_output=True).stdout)
        """)
    )
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=True)
    assert done.stdout == "b'5.0\\n'\n"


def test_what_has_no_text_or_no_bytes_is_refused():
    scope = {"noyau": noyau}
    exec("@noyau.op('f64[n] -> f64[n]')\ndef nowhere(x):\n    return x", scope)
    with pytest.raises(UnsupportedError, match="nowhere cannot go to another process: could not get source code; let"):
        pickle.dumps(scope["nowhere"])
    handle = (each for each in ())
    with pytest.raises(UnsupportedError, match="reads cannot go to another process: cannot pickle 'generator' object"):
        pickle.dumps(noyau.op("f64[n] -> f64[n]", name="reads")(lambda x: handle))
    place = portable._text(helper.__code__)
    with pytest.raises(OSError, match="the text of helper is not at"):
        portable._text(helper.__code__.replace(co_firstlineno=place[2] + 1))
