from __future__ import annotations

from contextlib import ExitStack

from noyau.sanitizer.scripts.fakes import WATCHING, FunctionGuard, patch


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
