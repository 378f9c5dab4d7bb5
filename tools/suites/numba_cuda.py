"""The tests of kernels of the installed Numba-CUDA (numba-cuda's, or Numba's own): `python -m tools.suites.numba_cuda`.

None is labelled defective: a finding is a false alarm, or a defect that nobody knew of."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.suites.driver import Case, main
from tools.suites.installed import cases_of, folder_of


def cases(folder: Path) -> list[Case]:
    """The tests of a folder, that of numba.cuda.tests."""
    files = [path for part in ("cudapy", "doc_examples") for path in sorted((folder / part).glob("test_*.py"))]
    modules = {path: ".".join(("numba.cuda.tests", *path.relative_to(folder).with_suffix("").parts)) for path in files}
    return [case for path, module in modules.items() for case in cases_of(module, path)]


if __name__ == "__main__":
    sys.exit(main("Numba-CUDA, its tests", cases, [str(folder_of("numba.cuda.tests")), *sys.argv[1:]]))
