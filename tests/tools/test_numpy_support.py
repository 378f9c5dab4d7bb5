from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tools import numpy_examples
from tools.numpy_support import document, exists, reason_of, tables

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "numpy.md"
ALL = {name: function for table in tables() for name, function in table.items()}


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.2.0", reason="an older NumPy has fewer functions")
def test_the_committed_document_is_the_generated_one():
    again = "run: python -m tools.numpy_support"
    assert COMMITTED.read_text(encoding="utf-8") == document(), again


@pytest.mark.parametrize("name", ALL)
def test_each_example_gives_what_numpy_gives(name):
    if not exists(name.partition("(")[0]):
        pytest.skip("this NumPy does not have it")
    assert reason_of(ALL[name]) == ""


@pytest.mark.parametrize("name", numpy_examples.REFUSED)
def test_what_is_refused_says_why(name):
    assert "cannot be traced" in reason_of(numpy_examples.REFUSED[name])


def test_an_example_that_is_wrong_is_told():
    assert reason_of(lambda a: a * (2 if isinstance(a, np.ndarray) else 3)) == ""
    assert reason_of(lambda a: a * (2 if type(a) is np.ndarray else 3)) == "it has other values in NumPy"
    assert reason_of(lambda a: a if type(a) is np.ndarray else a[0]).startswith("it is float32[4]")
