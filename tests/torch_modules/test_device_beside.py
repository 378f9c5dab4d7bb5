"""Waiting for what is compiled beside; no GPU is needed for that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from noyau.torch_modules import device_beside


def test_a_kernel_is_waited_for_once(monkeypatch):
    waited: list[Any] = []
    monkeypatch.setattr(device_beside, "BESIDE", SimpleNamespace(wait=waited.append))
    monkeypatch.setattr(device_beside, "BEGUN", {"softmax": [1, 2, 3]})
    kernel: Any = SimpleNamespace(operator="softmax")
    device_beside.wait(kernel)
    device_beside.wait(kernel)  # the next case
    assert waited == [[1, 2, 3], []]
    device_beside._begin("softmax", lambda: pytest.fail("it was begun"))
    device_beside.wait(SimpleNamespace(operator="another"))
    assert waited[2:] == [[]]
