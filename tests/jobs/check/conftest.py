from __future__ import annotations

from typing import Any

import pytest

from noyau.jobs.check.isolated_kernels import KernelProcesses
from noyau.workers.worker import ForkedWorker


class InCopies(KernelProcesses):
    """Kernels in C run in copies of this process, but where they have threads of OpenMP: another process takes a third
    of a second to begin, and tests/jobs/check/test_isolated_kernels.py is about those."""

    def __init__(self, op: Any, patience_s: float) -> None:
        super().__init__(op, patience_s)
        if not any("-fopenmp" in kernel.usage.options.get("flags", ()) for kernel in op.kernels.values()):
            self.native = ForkedWorker(op.name, patience_s)


@pytest.fixture(autouse=True)
def _in_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noyau.jobs.check.run.KernelProcesses", InCopies)
