"""The tasks of minitorch are found, and compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tools.suites import minitorch
from tools.suites.programs import minitorch_task


def test_a_case_is_a_task_of_a_backend(tmp_path):
    assert minitorch.cases_of(tmp_path) == []
    (tmp_path / "minitorch").mkdir()
    cases = minitorch.cases_of(tmp_path)
    assert [each.name for each in cases] == list(minitorch_task.TASKS)
    assert {"fast_map", "cuda_matmul", "cuda_practice"} <= {each.name for each in cases}
    assert "fast_practice" not in minitorch_task.TASKS
    assert cases[0].words == ("minitorch_task.py", str(tmp_path), "fast_map")
    assert not any(each.is_defective for each in cases)


class Result:
    """A tensor of minitorch's, of NumPy's numbers."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values

    def sum(self, axis):
        return Result(self.values.sum(axis, keepdims=True) + (axis == 1))


def test_a_wrong_result_ends_the_script():
    with pytest.raises(AssertionError, match="Mismatched elements"):
        minitorch_task.run_reduce(lambda *shape: Result(np.ones(shape)))
