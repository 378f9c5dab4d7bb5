from __future__ import annotations

import pytest

from noyau.compiler.partition.traffic import Traffic
from noyau.errors import BuildError
from noyau.jobs.profile import run


def test_without_a_compiler_the_floor_is_that_of_a_copy(monkeypatch):
    def missing(*_: object) -> float:
        raise BuildError("no compiler")

    monkeypatch.setattr(run, "floor_s", missing)
    monkeypatch.setattr(run, "copy_rate", lambda moved, threads: 1e9 * threads)
    assert run.least_s(Traffic(3000, 1000), 2) == pytest.approx(2e-6)
