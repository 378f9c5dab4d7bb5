"""What this thread does beside captures of others: the driver is told, where there is one."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch

from noyau.hosts.torch.cuda import device


class Driver:
    """A thread's mode, as the driver keeps it."""

    def __init__(self, refuses=False):
        self.mode, self.refuses = 0, refuses

    def __call__(self, given):
        if self.refuses:
            return 3
        self.mode, given._obj.value = given._obj.value, self.mode
        return 0


def test_the_mode_is_the_thread_s_own_for_a_while(monkeypatch):
    driver = Driver()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(device, "_exchange", lambda: driver)
    with suppress(ZeroDivisionError), device.beside_captures():
        assert driver.mode == 1
        raise ZeroDivisionError
    assert driver.mode == 0
    driver.refuses = True
    with device.beside_captures():
        assert driver.mode == 0


def test_without_cuda_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(device, "_exchange", lambda: pytest.fail("there is no driver to ask"))
    with device.beside_captures():
        pass
