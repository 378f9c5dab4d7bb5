"""Waiting for what is compiled beside; no GPU is needed for that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from noyau.jobs.optimize.cuda import candidates


def test_a_kernel_is_waited_for_once(monkeypatch):
    waited: list[Any] = []
    monkeypatch.setattr(candidates, "COMPILER", SimpleNamespace(wait=waited.append))
    monkeypatch.setattr(candidates, "BEGUN", {"softmax": [1, 2, 3]})
    kernel: Any = SimpleNamespace(operator="softmax")
    candidates.wait(kernel)
    candidates.wait(kernel)  # the next case
    assert waited == [[1, 2, 3], []]
    monkeypatch.setattr(candidates, "first_launches", lambda *_: pytest.fail("it was begun"))
    place: Any = SimpleNamespace(type="cuda")
    candidates.begin([kernel], kernel, place)
    candidates.wait(SimpleNamespace(operator="another"))
    assert waited[2:] == [[]]
