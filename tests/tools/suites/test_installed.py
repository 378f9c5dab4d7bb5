from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tools.suites import numba as numba_suite
from tools.suites import numba_cuda as numba_cuda_suite
from tools.suites.driver import check_case
from tools.suites.installed import PROGRAM, cases_of, folder_of
from tools.suites.programs.installed_test import execute_file

SUITE = """
import unittest
import numpy as np

class TestPrangeHere(unittest.TestCase):
    def test_clean(self):
        def fill(n):
            x = np.zeros(n)
            for i in range(n):
                x[i] = i
            return x
        self.prange_tester(fill, 4)

    def test_race(self):
        def last(n):
            x = np.zeros(1)
            for i in range(n):
                for j in range(2):
                    x[0] += i
            return x
        self.prange_tester(last, 4, patch_instance=[0])

    def test_none(self):
        self.skipTest("no reason")

    prange_tester = None

class Other(unittest.TestCase):
    def test_else(self):
        for i in prange(3): ...
"""


def test_cases_are_the_tests_of_some_classes(tmp_path):
    (tmp_path / "suite_of_tests.py").write_text(SUITE)
    assert len(list(cases_of("suite_of_tests", tmp_path / "suite_of_tests.py"))) == 3
    cases = list(cases_of("suite_of_tests", tmp_path / "suite_of_tests.py", {"test_race"}, "prange_test"))
    assert [(each.name, each.is_defective) for each in cases] == [
        ("TestPrangeHere.test_clean", False),
        ("TestPrangeHere.test_race", True),
    ]
    assert cases[0].words == (str(PROGRAM), "suite_of_tests.TestPrangeHere.test_clean")


@pytest.mark.slow
@pytest.mark.long
def test_each_runs_under_a_check_with_prange_in_its_text(tmp_path):
    (tmp_path / "suite_of_tests.py").write_text(SUITE)
    cases = cases_of("suite_of_tests", tmp_path / "suite_of_tests.py", {"test_race"})
    where = {"PYTHONPATH": f"{tmp_path}:{Path(numba_suite.__file__).parents[2]}"}
    outcomes = [check_case(each, 120, where) for each in cases]
    assert [each.verdict for each in outcomes] == ["right", "defective", "empty"]


def test_what_a_test_executes_has_a_text_to_read():
    names: dict[str, Any] = {"least": 3}
    execute_file("def kernel(x):\n    return x + least\n", names)
    assert inspect.getsource(names["kernel"]) == "def kernel(x):\n    return x + least\n"
    assert names["kernel"](1) == 4


def test_the_suites_of_what_is_installed():
    assert sum(each.is_defective for each in numba_suite.cases(folder_of("numba.tests"))) == len(numba_suite.DEFECTIVE)
    of_cuda = numba_cuda_suite.cases(folder_of("numba.cuda.tests"))
    assert sum(each.is_defective for each in of_cuda) == len(numba_cuda_suite.DEFECTIVE)
    names = {each.words[1] for each in of_cuda}
    assert any(each.startswith("numba.cuda.tests.cudapy.test_sync.") for each in names)
    with pytest.raises(SystemExit, match="nothing_of_this_name is not installed"):
        folder_of("nothing_of_this_name")
    assert folder_of("numpy").joinpath("__init__.py").samefile(np.__file__)
