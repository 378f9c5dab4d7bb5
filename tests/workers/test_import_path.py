"""A file that bears the name of an installed package may import that package; its neighbours are found first."""

from __future__ import annotations

import subprocess
import sys

import pytest

from noyau.errors import InputError
from noyau.ops.op_files import load_ops
from noyau.workers.import_path import LazyModule, import_path, when_imported


def test_the_folder_of_a_file_comes_first_and_goes_again(tmp_path):
    (tmp_path / "neighbour_of_it.py").write_text("value = 3", "utf-8")
    before, finders = [*sys.path], [*sys.meta_path]
    with import_path(tmp_path / "it.py"):
        import neighbour_of_it

        assert neighbour_of_it.value == 3
    assert (sys.path, sys.meta_path) == (before, finders)
    with pytest.raises(ModuleNotFoundError):
        import neighbour_of_them  # noqa: F401


@pytest.mark.parametrize("package", ["numba", "sndhdr_of_mine"])
def test_a_file_called_like_a_package_that_it_imports(tmp_path, package):
    (tmp_path / f"{package}.py").write_text(
        "import noyau\nimport numba\n\n\n@noyau.op('f32[n] -> f32[n]')\n"
        "def f(x):\n    return x + numba.__version__.count('x')\n",
        "utf-8",
    )
    assert [op.name for op in load_ops(str(tmp_path / f"{package}.py"))] == ["f"]


def test_a_script_called_like_the_package_of_its_kernels(tmp_path):
    script = tmp_path / "numba.py"
    script.write_text(
        "import numpy as np\nimport numba\n\n\n@numba.njit(parallel=True)\ndef f(x):\n"
        "    for i in numba.prange(x.size):\n        x[0] += i\n\n\nf(np.zeros(9))\n",
        "utf-8",
    )
    run = subprocess.run(
        [sys.executable, "-m", "noyau", "check", str(script)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "f: race" in run.stdout, run.stdout + run.stderr


def test_a_file_that_imports_itself_by_its_own_name_finds_itself(tmp_path):
    path = tmp_path / "only_here_and_nowhere.py"
    path.write_text("import only_here_and_nowhere as me\nassert me.__file__ == __file__\n", "utf-8")
    with pytest.raises(InputError, match="has no op"):
        load_ops(str(path))


def test_a_lazy_module_is_imported_with_the_first_thing_that_is_asked_of_it(tmp_path, monkeypatch):
    (tmp_path / "lazy_one_of_mine.py").write_text("value = 3", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    lazy = LazyModule("lazy_one_of_mine")
    assert "lazy_one_of_mine" not in sys.modules
    assert lazy.value == 3
    with pytest.raises(ImportError, match="No module named 'not_there_at_all'"):
        LazyModule("not_there_at_all")


def test_what_follows_an_import(tmp_path, monkeypatch):
    (tmp_path / "imported_of_mine.py").write_text("value = 3", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    with when_imported("imported_of_mine", lambda: seen.append(sys.modules["imported_of_mine"].value)):
        assert not seen
        import imported_of_mine  # noqa: F401
    assert seen == [3]
