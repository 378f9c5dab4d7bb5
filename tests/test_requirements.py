"""The packages that the tests need: all of the extra `test` are there, and no test skips for want of one."""

from __future__ import annotations

import ast
import importlib.metadata
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent


@cache
def extras() -> dict[str, list[str]]:
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    return {name: list(texts) for name, texts in optional.items()}


def needed(extra: str) -> Iterator[Requirement]:
    """The requirements of an extra, and of the extras of noyau that it names."""
    for each in map(Requirement, extras()[extra]):
        if each.name == "noyau-kernels":
            for name in sorted(each.extras):
                yield from needed(name)
        else:
            yield each


NEEDED = {canonicalize_name(each.name): each for each in needed("test")}


def test_what_the_tests_are_about_is_needed():
    named = {"torch", "triton", "numba", "numba-cuda", "onnx", "onnxruntime", "pyelftools", "tree-sitter", "hypothesis"}
    assert named <= NEEDED.keys()


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_a_package_that_the_tests_need_is_installed(name):
    found = importlib.metadata.version(name)
    assert NEEDED[name].specifier.contains(found, prereleases=True), f"{name} {found} is not {NEEDED[name]}"


def skips(tree: ast.AST) -> list[tuple[str, bool]]:
    """The packages for want of which a file skips, and whether it says why."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        (ast.unparse(call.args[0]).strip("'").partition(".")[0], any(word.arg == "reason" for word in call.keywords))
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "importorskip"
    ]


def test_a_skip_is_found():
    text = "import pytest\nnumba = pytest.importorskip('numba.cuda')\npytest.importorskip('cupy', reason='none')"
    assert skips(ast.parse(text)) == [("numba", False), ("cupy", True)]


def test_no_test_skips_for_want_of_what_is_needed():
    found = {
        path.relative_to(ROOT).as_posix(): skips(ast.parse(text))
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if "importorskip" in (text := path.read_text("utf-8"))
    }
    modules = importlib.metadata.packages_distributions()
    silent = {path: names for path, names in found.items() if not all(said for _, said in names)}
    assert silent == {}
    owners = {
        (path, canonicalize_name(owner))
        for path, names in found.items()
        for name, _ in names
        for owner in modules.get(name, ())
    }
    assert [(path, owner) for path, owner in sorted(owners) if owner in NEEDED] == []
