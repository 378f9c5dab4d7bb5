from __future__ import annotations

import json
import textwrap

from noyau.jobs.cli import main
from noyau.sanitizer.scripts.lint import lint_script, lint_text

SCRIPT = """
    import time
    import numpy as np
    from numba import cuda

    @cuda.jit
    def double(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= 2

    x = cuda.to_device(np.ones(64, np.float32))
    start = time.perf_counter()
    double[1, 64](x)
    cuda.synchronize{}
    print(time.perf_counter() - start)
"""
CELLS = [
    "import numpy as np\nfrom numba import cuda\n%load_ext noyau",
    "@cuda.jit\ndef double(x):\n    x[cuda.grid(1)] *= 2",
    "x = cuda.to_device(np.ones(64, np.float32))",
    "%timeit -n 3 double[1, 64](x); cuda.synchronize",
    "%timeit double[1, 64](x); cuda.synchronize()",
    "%%timeit\n\ndouble[1, 64](x)",
    "%%timeit\ndouble[1, 64](x)\ncuda.synchronize()",
    "%%bash\n%timeit nothing",
]


def test_of_a_script_by_its_lines(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT).format(""))
    found = {(each.kernel, each.place.rpartition(":")[2]): each.message for each in lint_script(path)}
    assert found == {
        ("script", "15"): "cuda.synchronize is named and not called: nothing is done",
        ("double", "16"): "the clock of the host does not wait for double, launched on line 14: what is timed is the "
        "launch alone",
    }
    path.write_text(textwrap.dedent(SCRIPT).format("()"))
    assert lint_script(path) == ()
    path.write_text("assert x.is_contiguous  # noyau: allow(launch) a property here\n")
    assert lint_script(path) == ()
    path.write_text("def (:\n")
    assert lint_script(path) == ()


def test_of_a_notebook_by_its_cells(tmp_path):
    path = tmp_path / "book.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": text} for text in CELLS]}))
    assert [(each.place, each.message.partition(" does not")[0]) for each in lint_script(path)] == [
        ("book.ipynb[cell 4]:1", "%timeit"),
        ("book.ipynb[cell 4]:1", "cuda.synchronize is named and not called: nothing is done"),
        ("book.ipynb[cell 6]:1", "%%timeit"),
    ]


SUMS = """
    import numpy as np
    from numba import njit

    @njit
    def total(x):
        s = np.float32(0)
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                s += x[i, j]
        return s

    print(total(np.ones((10, 10), np.float32)))
    print(total(np.broadcast_to(np.float32(1), (5000, 5000))))
"""


def test_a_warning_fails_where_it_is_to_count(tmp_path, capsys):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT).format("") + textwrap.dedent(SUMS))
    record = tmp_path / "record.json"
    assert main(["check", str(path), "--strict", "--json", str(record)]) == 1
    told = capsys.readouterr().out
    assert "script.py: warning: launch: the clock of the host does not wait for double" in told
    assert " 16 | print(time.perf_counter() - start)" in told
    assert "= mend: call cuda.synchronize() before the clock is read, or time with events" in told
    held = json.loads(record.read_text())
    sums = [each for each in held["findings"] if each["kind"] == "precision"]
    assert [each["message"].partition(":")[0] for each in sums] == [
        "s adds 25000000 numbers in float32, one after the other"
    ]
    assert path.read_text().splitlines()[sums[0]["line"] - 1].strip() == "s += x[i, j]"
    assert held["ok"]
    assert {each["severity"] for each in held["findings"]} == {"warning"}


def test_of_a_cell():
    text = "x = 1\ncuda.synchronize\n"
    assert [(each.place, each.kind) for each in lint_text(text, "cell")] == [("cell:2", "launch")]
    assert lint_text("def (", "cell") == ()
