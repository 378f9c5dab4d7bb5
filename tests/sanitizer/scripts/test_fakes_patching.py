from __future__ import annotations

from contextlib import ExitStack

from noyau.sanitizer.scripts.fakes import patch


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
