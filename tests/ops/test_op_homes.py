from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import noyau
from noyau.errors import InputError
from noyau.ops import op_homes
from noyau.ops.op import Op
from noyau.ops.op_files import load_op
from noyau.ops.op_homes import Enough, end_loading, home_of, reload_op, runs_as_script

FILE = """
import noyau

COUNT = 0

@noyau.op("f32[n] -> f32[n]")
def double(x):
    return x + x

@double.kernel
def twice(x, out):
    out[...] = 2 * x

@noyau.op("f32[n] -> f32[n]")
def same(x):
    return x
"""


@noyau.op("f32[n] -> f32[n]")
def of_this_module(x):
    return x + x


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "ops.py"
    path.write_text(FILE)
    return path


def test_an_op_of_a_file_is_found_again(file):
    op = load_op(f"{file}::double")
    home = home_of(op)
    assert (home.module, home.file, home.name) == ("", str(file), "double")
    again = reload_op(home)
    assert again is not op
    assert again.kernels["twice"].text == op.kernels["twice"].text
    assert str(file.parent) not in sys.path


def test_an_op_of_a_module_is_found_by_its_name():
    home = home_of(of_this_module)
    assert home.module in ("", __name__)
    assert home.name == "of_this_module"
    assert np.array_equal(reload_op(home).reference(np.ones(2)), [2, 2])
    assert not runs_as_script(of_this_module)


def test_an_op_of_a_function_has_no_place():
    @noyau.op("f32[n] -> f32[n]")
    def local(x):
        return x

    assert home_of(local) is None


@pytest.mark.parametrize("what", ["noyau.check(double)", "raise SystemExit", "1 / 0"])
def test_a_file_is_run_up_to_its_first_check(file, what):
    op = load_op(f"{file}::double")
    home = home_of(op)
    file.write_text(FILE + f"\n{what}\n")
    if "check" in what:
        assert reload_op(home).name == "double"
        end_loading()  # no file is being loaded now
    else:
        with pytest.raises(InputError, match=r"ops\.py fails when it is loaded again, with (SystemExit|ZeroDivision)"):
            reload_op(home)


def test_what_ends_the_loading_is_no_exception_that_a_file_catches(monkeypatch):
    monkeypatch.setattr(op_homes, "_IS_LOADING", [True])
    with pytest.raises(Enough):
        end_loading()
    assert not issubclass(Enough, Exception)


def test_a_file_that_was_changed_is_not_taken(file):
    home = home_of(load_op(f"{file}::double"))
    file.write_text(FILE.replace("2 * x", "3 * x"))
    with pytest.raises(InputError, match="has no such double when it is loaded again"):
        reload_op(home)


def test_a_script_is_told(file):
    file.write_text(FILE + "\nfrom noyau.ops.op_homes import home_of, runs_as_script\n")
    file.write_text(file.read_text() + "print(runs_as_script(double), home_of(double).module == '')\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(noyau.__file__).parent.parent)}
    found = subprocess.run([sys.executable, str(file)], capture_output=True, check=True, text=True, env=environment)
    assert found.stdout == "True True\n"


def test_a_part_of_an_op_is_found_by_the_whole(file):
    op = load_op(f"{file}::double")
    (kernel,) = op.kernels.values()
    part = Op(replace(op.description, kernels=(replace(kernel, name="twice (BLOCK=64)"),)))
    assert home_of(part) == home_of(op)
    other = Op(replace(op.description, kernels=(replace(kernel, text="another"),)))
    assert home_of(other) is None
