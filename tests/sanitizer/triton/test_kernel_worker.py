from __future__ import annotations

import os

import pytest

from noyau.errors import InputError
from noyau.ops.op_files import load_ops
from noyau.ops.op_homes import home_of
from noyau.sanitizer.triton.kernel import end, interpreter_of

OPS = """
import noyau

@noyau.op("f32[n] -> f32[n]")
def double(x):
    return x + x

@noyau.op("f32[n] -> f32[n]")
def square(x):
    return x * x
"""


def name_of(op):
    return op.name


def test_one_process_serves_the_ops_of_a_file(tmp_path):
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "more.py").write_text(OPS)
    homes = [home_of(op) for op in load_ops(str(tmp_path / "ops.py"))]
    worker = interpreter_of(homes[0], "double")
    try:
        assert worker.environment == {"TRITON_INTERPRET": "1", "OPENBLAS_NUM_THREADS": "1"}
        worker.hold(homes[0])
        first = worker.ask(os.getpid)
        assert worker.call(name_of) == "double"
        assert interpreter_of(homes[1], "square") is worker
        worker.hold(homes[1])
        assert worker.call(name_of) == "square"
        worker.end()
        worker.hold(homes[1])  # begins anew
        assert worker.call(name_of) == "square"
        assert worker.ask(os.getpid) != first
        (tmp_path / "ops.py").write_text(OPS.replace("x * x", "x * 3.25"))
        worker.end()
        with pytest.raises(InputError, match="has no such square when it is loaded again"):
            worker.hold(homes[1])
        assert interpreter_of(home_of(load_ops(str(tmp_path / "more.py"))[0]), "double") is not worker
        assert not worker.is_running
    finally:
        end()
