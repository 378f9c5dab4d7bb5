"""What Numba leaves out for a text of ours changes nothing but the time that it takes."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import types
from numba.core.compiler import DefaultPassBuilder
from numba.core.runtime import _nrt_python as _nrt
from numba.core.runtime import rtsys
from numba.core.typing.context import BaseContext

from noyau.codegen.numba import printer as numba_printer
from noyau.toolchain.numba import kernel as numba_kernel
from noyau.toolchain.numba import passes
from noyau.toolchain.numba.kernel import NumbaKernel
from tests.codegen.numba_kernels import compiled, kernel_of

ROWS = np.random.default_rng(1).standard_normal((5, 70)).astype(np.float32)


@pytest.fixture(autouse=True)
def nothing_compiled_before(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize("name", ["log_softmax_streamed", pytest.param("row_argmax", marks=pytest.mark.long)])
def test_a_launch_gives_the_bits_that_numba_itself_gives(name, tmp_path, monkeypatch):
    ours = compiled(name)(ROWS)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "whole"))
    monkeypatch.setattr(passes, "_LEFT_OUT", frozenset())
    monkeypatch.setattr(numba_kernel, "_SCALARS", {})
    whole = NumbaKernel(numba_printer.together([kernel_of(name)]), kernel_of(name))(ROWS)
    assert [each.tobytes() for each in ours] == [each.tobytes() for each in whole]


def test_what_is_left_out_are_passes_of_numba():
    found = []

    class Noted(passes._Shorter):
        def define_pipelines(self):
            whole = DefaultPassBuilder.define_nopython_pipeline(self.state)
            found.extend((each[0].__name__ for each in made.passes) for made in (whole, *super().define_pipelines()))
            return super().define_pipelines()

    made = numba.njit(lambda x: x + 1, pipeline_class=Noted)
    assert made(2) == 3
    whole, shorter = map(set, found)
    assert whole >= passes._LEFT_OUT
    assert not shorter & passes._LEFT_OUT


def test_an_operator_is_resolved_once_for_the_types_that_it_takes(monkeypatch):
    asked = []
    resolve = BaseContext.resolve_function_type
    monkeypatch.setattr(
        BaseContext, "resolve_function_type", lambda *given: asked.append(given[1:3]) or resolve(*given)
    )
    monkeypatch.setattr(passes, "_signatures", {})
    NumbaKernel(numba_printer.together([kernel_of("row_argmax")]), kernel_of("row_argmax"))
    operators = [each for each in asked if passes._is_known(each[0])]
    assert operators
    assert len(operators) == len(set(operators))
    added = [kinds for function, kinds in operators if getattr(function, "typing_key", None) is operator.add]
    assert added
    assert not any(isinstance(kind, types.Literal) for kinds in added for kind in kinds)


def test_memory_of_rows_is_given_back():
    assert "noyau_row(" in numba_printer.together([kernel_of("column_sums")])
    made = compiled("column_sums")
    _nrt.memsys_enable_stats()
    before = rtsys.get_allocation_stats()
    made(ROWS)
    after = rtsys.get_allocation_stats()
    _nrt.memsys_disable_stats()
    assert after.alloc > before.alloc
    assert after.alloc - before.alloc == after.free - before.free


def test_a_release_without_a_name_compiles_by_all_its_passes():
    program = """
import numpy as np
from numba.core import compiler_machinery, typed_passes
del compiler_machinery.register_pass
import noyau
from noyau.toolchain.numba import kernel as numba
assert numba.shorten.__module__ == numba.__name__
from tests.codegen.numba_kernels import compiled
rows = np.arange(12, dtype=np.float32).reshape(3, 4)
assert np.allclose(np.exp(compiled("log_softmax_streamed")(rows)[0]).sum(-1), 1)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
