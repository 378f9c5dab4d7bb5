"""The tests of the installed Numba whose texts say prange: `python -m tools.suites.numba`. Those that are
labelled defective were read. Of five Numba itself warns: a name that iterations assign is read after the loop. Three
read a sum that iterations still add to."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.suites.driver import Case, main
from tools.suites.installed import cases_of, folder_of, modules_in

DEFECTIVE = frozenset(
    "test_parfor_race_1 test_mutable_list_param test_issue9256_lower_sroa_conflict "
    "test_issue9256_lower_sroa_conflict_variant1 test_issue9256_lower_sroa_conflict_variant2 "
    "test_parfor_array_access2 test_parfor_array_access3 test_parfor_slice27".split()
)


def cases(folder: Path) -> list[Case]:
    """The tests of a folder, that of numba.tests."""
    modules = modules_in("numba.tests", folder, (".", "doc_examples"))
    return [case for module, path in modules.items() for case in cases_of(module, path, DEFECTIVE, "prange")]


if __name__ == "__main__":
    sys.exit(main("Numba's own tests with prange", cases, [str(folder_of("numba.tests")), *sys.argv[1:]]))
