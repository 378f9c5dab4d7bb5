"""The program `noyau`."""

from __future__ import annotations

import sys

import pytest

from noyau import __main__


def test_ctrl_c_during_the_imports_is_one_line_and_status_130(monkeypatch, capsys):
    class Interruption:
        def find_spec(self, *_):
            raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "noyau.jobs.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interruption()])
    assert __main__.main() == 130
    assert capsys.readouterr() == ("", "noyau: interrupted\n")


@pytest.mark.parametrize(("words", "status"), [(["--version"], 0), (["nonsense"], 2)])
def test_the_status_is_that_of_the_command_line(words, status, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["noyau", *words])
    assert __main__.main() == status
