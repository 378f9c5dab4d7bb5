"""A program for `noyau check`: a file of tests that calls none of them: `uncalled_tests.py FILE` does."""

from __future__ import annotations

import runpy
import sys


def main(path: str) -> None:
    """Run the file, then each function of it that is a test."""
    for name, value in runpy.run_path(path).items():
        if name.startswith("test_"):
            value()


if __name__ == "__main__":
    main(sys.argv[1])
