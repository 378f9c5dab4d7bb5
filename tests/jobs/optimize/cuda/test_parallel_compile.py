"""Waiting for what is compiled beside; no GPU is needed for that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from noyau.jobs.optimize.cuda import parallel_compile


def test_a_kernel_is_waited_for_once(monkeypatch):
    waited: list[Any] = []
    monkeypatch.setattr(parallel_compile, "COMPILER", SimpleNamespace(wait=waited.append))
    monkeypatch.setattr(parallel_compile, "BEGUN", {"softmax": [1, 2, 3]})
    kernel: Any = SimpleNamespace(operator="softmax")
    parallel_compile.wait(kernel)
    parallel_compile.wait(kernel)  # the next case
    assert waited == [[1, 2, 3], []]
    parallel_compile._begin("softmax", lambda: pytest.fail("it was begun"))
    parallel_compile.wait(SimpleNamespace(operator="another"))
    assert waited[2:] == [[]]
