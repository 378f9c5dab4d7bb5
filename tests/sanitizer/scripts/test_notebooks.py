from __future__ import annotations

import json
import linecache

import pytest

from noyau.errors import InputError
from noyau.sanitizer.scripts.notebooks import cells_of, remember_cells, run_cells


def book(tmp_path, *cells):
    path = tmp_path / "book.ipynb"
    held = [{"cell_type": "code", "source": text.splitlines(True)} for text in cells]
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": "# Title"}, *held]}), encoding="utf-8")
    return path


def test_lines_keep_their_numbers(tmp_path):
    (cell,) = cells_of(book(tmp_path, "%matplotlib inline\nx = 1\n!ls\nif x:\n    %time y = 2\nx?\n"))
    assert cell.text.splitlines() == ["pass", "x = 1", "pass", "if x:", "    y = 2", "pass"]
    assert cell.left_out == 3


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("t = %timeit -n 3 -o f(x)\nfiles = !ls\n%timeit -r2 -n 5 f(x)\n", ["t = f(x)", "files = None", "f(x)"]),
        ("f(x)  # or not?\nx = (10\n  % 3)\nf?\n", ["f(x)  # or not?", "x = (10", "  % 3)", "pass"]),
        ("%%time\nx = 1\n", ["pass", "x = 1"]),
        ("%%bash\nrm x\n", []),
        ("%%check\ny = 2\n", ["pass", "y = 2"]),
    ],
)
def test_a_cell_magic_runs_its_cell_where_it_is_python(tmp_path, text, kept):
    (cell,) = cells_of(book(tmp_path, text))
    assert cell.text.splitlines() == kept


def test_cells_share_a_namespace_and_print_their_last_value(tmp_path, capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    left = run_cells(cells_of(book(tmp_path, "x = 20", "y = x + 1\ny * 2", "None", "!ls")), "book.ipynb")
    assert capsys.readouterr().out == "42\n"
    assert left == ["a line of IPython's own (%..., !...) was not run"]


def test_a_file_that_a_cell_writes_is_there_for_the_next_one(tmp_path, capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.chdir(tmp_path)
    cells = cells_of(book(tmp_path, "%%writefile two.py\ndef two():\n    return 2\n", "print(open('two.py').read())"))
    assert run_cells(cells, "book.ipynb") == []
    assert capsys.readouterr().out == "def two():\n    return 2\n\n"


def test_the_text_of_a_cell_is_found_by_its_name(tmp_path):
    remember_cells(cells_of(book(tmp_path, "a = 1\nb = 2")), "book.ipynb")
    assert linecache.getline("book.ipynb[cell 1]", 2) == "b = 2\n"


@pytest.mark.parametrize("text", ["", "[]", '{"cells": 3}', '{"cells": [{"cell_type": "code"}]}'])
def test_what_is_no_notebook(tmp_path, text):
    path = tmp_path / "book.ipynb"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"is no notebook of Jupyter .*; save it again$"):
        cells_of(path)
