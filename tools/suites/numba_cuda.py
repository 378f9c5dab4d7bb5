"""The tests of kernels of the installed Numba-CUDA (numba-cuda's, or Numba's own): `python -m tools.suites.numba_cuda`.

Those that are labelled defective were read: shared memory that nobody sets, cells that all threads update, a store by
lane 0 into the cell that the others read, and `grid.sync()` where threads have ended or took another branch."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.suites.driver import Case, main
from tools.suites.installed import cases_of, folder_of, modules_in

DEFECTIVE = frozenset(
    "test_freevar test_issue_2393 test_global_constants test_global_build_tuple test_global_constant_tuple "
    "test_raise_causing_warp_diverge test_useful_syncwarp test_ex_sessionize test_ex_laplace".split()
)


def cases(folder: Path) -> list[Case]:
    """The tests of a folder, that of numba.cuda.tests."""
    modules = modules_in("numba.cuda.tests", folder, ("cudapy", "doc_examples"))
    return [case for module, path in modules.items() for case in cases_of(module, path, DEFECTIVE)]


if __name__ == "__main__":
    sys.exit(main("Numba-CUDA, its tests", cases, [str(folder_of("numba.cuda.tests")), *sys.argv[1:]]))
