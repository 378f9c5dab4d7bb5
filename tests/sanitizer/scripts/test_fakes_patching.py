from __future__ import annotations

from contextlib import ExitStack

from noyau.sanitizer.scripts.fakes import patch, watching_functions


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


def test_functions_that_were_replaced_are_others(monkeypatch):
    before = watching_functions()
    assert watching_functions() == before
    monkeypatch.setattr("noyau.text.several", lambda *each: "")
    monkeypatch.setattr("noyau.sanitizer.engine.Shadow.touch_many", lambda *each: 0)
    monkeypatch.setattr("numpy.flatnonzero", len)
    after = watching_functions()
    changed = [place for place, function in before.items() if after[place] is not function]
    names = {f"{holder.__name__}.{name}" for holder, name in changed}
    assert {"numpy.flatnonzero", "Shadow.touch_many", "noyau.text.several"} <= names
