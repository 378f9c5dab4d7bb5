from __future__ import annotations

import ast
import linecache
from contextlib import ExitStack

import numpy as np
import pytest

from noyau.sanitizer.scripts import fakes
from noyau.sanitizer.scripts.fakes import WATCHING, FunctionGuard, patch, patch_allclose, shown_difference


def test_what_was_there_comes_back_and_what_was_not_goes():
    class Parent:
        name = "parent"

    class Child(Parent):
        own = 1

    with ExitStack() as undone:
        patch(undone, Child, "own", 2)
        patch(undone, Child, "name", "child")
        assert (Child.own, Child.name) == (2, "child")
    assert (Child.own, Child.name) == (1, "parent")
    assert "name" not in vars(Child)


def test_functions_that_were_replaced_are_others_though_they_come_back(monkeypatch):
    guard = FunctionGuard()
    assert guard.look(WATCHING) == ""
    with monkeypatch.context() as change:
        change.setattr("noyau.text.several", lambda *each: "")
        change.setattr("noyau.sanitizer.engine.Shadow.touch_many", lambda *each: 0)
        change.setattr("numpy.flatnonzero", len)
        assert guard.look() == "Shadow.touch_many"  # of the sanitizer alone
        names = set(guard.look(WATCHING).split(", "))
        assert {"numpy.flatnonzero", "Shadow.touch_many", "noyau.text.several"} <= names
    assert set(guard.look().split(", ")) == names


def test_a_stand_in_that_is_replaced_is_another_one():
    class Library:
        launch = 1

    with ExitStack() as undone:
        patch(undone, Library, "launch", 2)
        assert FunctionGuard().look() == ""
        Library.launch = 3
        assert FunctionGuard().look() == "Library.launch"
    assert FunctionGuard().look() == ""


def test_comparisons_that_say_no_tell_it():
    told: list[str] = []
    before = np.allclose
    with ExitStack() as undone:
        patch_allclose(undone, told.append)
        assert np.allclose is before  # which Numba knows
        assert np.allclose([1, 2], [1, 2])
        assert not np.allclose([1, 2], b=[1, 3])
        assert np.isclose([1], [2]).tolist() == [False]
    assert not np.allclose([1], [2])
    (place,) = told
    file, _, line = place.rpartition(":")
    assert "b=[1, 3]" in linecache.getline(file, int(line))


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("print('same:', np.allclose(a, b))", True),
        ("print(f'{torch.allclose(a, b)}')", True),
        ("same = allclose(a, b)\nprint(same)", True),
        ("if np.allclose(a, b):\n    print('yes')\nelse:\n    print('no')", True),
        ("same = np.allclose(a, b)\nif not same:\n    print('no')", True),
        ("logger.info('same %s', np.allclose(\n    a, b))", True),
        ("assert np.allclose(a, b)", False),
        ("assert not np.allclose(a, b)", False),
        ("while not np.allclose(a, b):\n    print('again')", False),
        ("if not np.allclose(a, b):\n    raise SystemExit(1)", False),
        ("same = np.allclose(a, b)\nprint(same)\nsys.exit(not same)", False),
        ("def same(a, b):\n    return np.allclose(a, b)\nprint(same(1, 2))", False),
        ("print('same:', np.allclose(a, b))  # noyau: allow(wrong-value) it is shown that they differ", False),
        ("same = True\nfor each in a:\n    same = np.allclose(a, b) and same\nprint(same)", True),
        ("same = True\nfor each in a:\n    same = np.allclose(a, b) and same", False),
        ("one = np.allclose(a, b)\nother = one\none = other\nassert one", False),
        ("print(", False),
    ],
)
def test_a_difference_is_told_where_it_is_shown_alone(tmp_path, text, is_told):
    path = tmp_path / "script.py"
    path.write_text(text + "\n")
    line = 1 + next((at for at, each in enumerate(text.splitlines()) if "close(" in each), 0)
    found = shown_difference("allclose", f"{path}:{line}", "script.py")
    assert [(each.kind, each.severity) for each in found] == [("wrong-value", "warning")] * is_told


def test_a_line_is_looked_at_once(tmp_path, monkeypatch):
    """Of names that are made of themselves, and in loops."""
    (tmp_path / "script.py").write_text("same = True\nwhile True:\n    same = allclose(a, b) and same\nprint(same)\n")
    walks, plain = list[ast.AST](), ast.walk
    monkeypatch.setattr(fakes.ast, "walk", lambda tree: walks.append(tree) or plain(tree))
    for _ in range(100):
        assert shown_difference("allclose", f"{tmp_path}/script.py:3", "script.py")
    assert len(walks) < 5
