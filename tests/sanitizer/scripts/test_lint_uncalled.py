from __future__ import annotations

import ast

import pytest

from noyau.sanitizer.scripts.lint import uncalled_methods


def told(text):
    return [(each.line, each.message, each.mend) for each in uncalled_methods(ast.parse(text), "s.py")]


@pytest.mark.parametrize(
    "text", ["cuda.synchronize", "f(x); torch.cuda.synchronize", "def k(s):\n    cuda.syncthreads", "out.copy_to_host"]
)
def test_a_method_as_a_statement(text):
    name = text.split()[-1]
    assert told(text) == [(text.count("\n") + 1, f"{name} is named and not called: nothing is done", f"write {name}()")]


@pytest.mark.parametrize(
    "text",
    [
        "assert t.is_contiguous",
        "if not t.is_contiguous: pass",
        "while a and t.is_contiguous: pass",
        "y = 1 if t.is_contiguous else 2",
        "z = [u for t in ts if t.is_contiguous]",
    ],
)
def test_a_method_as_a_condition(text):
    message = "t.is_contiguous is a method that is not called: as a condition it always holds"
    assert told(text) == [(1, message, "write t.is_contiguous()")]


def test_any_and_all_of_arrays():
    assert [line for line, *_ in told("same = x == y\nassert same.all\nassert (x > 0).any\nif np.isnan(x).any: pass")]
    assert told("same = x == y\nassert same.all")[0][2] == "write same.all()"


@pytest.mark.parametrize(
    "text",
    [
        "assert t.is_contiguous()",
        "cuda.synchronize()",
        "wait = cuda.synchronize",
        "if args.all: pass",
        "if self.options.any: pass",
        "if t.is_cuda: pass",
        "check(t.is_contiguous)",
        "class Layout:\n    @property\n    def is_contiguous(self): return True\nassert layout.is_contiguous",
        "class Layout:\n    is_contiguous: bool\nassert layout.is_contiguous",
        "df.shape",
    ],
)
def test_what_is_meant(text):
    assert told(text) == []
