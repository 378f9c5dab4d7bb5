"""The parallel tests of the installed Numba, `TestPrange*` of numba.tests.test_parfors: `python -m tools.suites.numba`.
All are right but two, of which Numba itself warns: a name that iterations assign is read after the loop."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.suites.driver import Case, main
from tools.suites.installed import cases_of, folder_of

DEFECTIVE = frozenset({"test_parfor_race_1", "test_mutable_list_param"})


def cases(folder: Path) -> list[Case]:
    """The tests of a folder, that of numba.tests."""
    return list(cases_of("numba.tests.test_parfors", folder / "test_parfors.py", DEFECTIVE, "TestPrange"))


if __name__ == "__main__":
    sys.exit(main("Numba, TestPrange*", cases, [str(folder_of("numba.tests")), *sys.argv[1:]]))
