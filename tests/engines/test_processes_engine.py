import numpy as np
import pytest

import noyau
from noyau.engines import processes_engine
from noyau.errors import OutsideError, RaisedError
from tests.engines.engine_cases import COLUMNS, Extent, assert_same_as_local, group_sums, write_files


def test_processes_give_what_threads_do_and_what_a_lost_one_was_at(tmp_path):
    write_files(tmp_path)
    assert_same_as_local("processes", tmp_path)
    result = noyau.stream(Extent(str(tmp_path / "mark")), tmp_path / "whole.parquet", engine="processes", workers=2)
    assert (tmp_path / "mark").exists() and result.value == np.ptp(COLUMNS["x"])
    assert [part[1] for part in result.parts] == [700, 700, 700, 700, 200] and "5 parts; the longest, " in str(result)


def test_what_fails_is_one_error(tmp_path, monkeypatch):
    fault = r"^processes: group_sums on the arrays, rows 0 to 2: .*an index is outside"
    with pytest.raises(OutsideError, match=fault):
        noyau.stream(group_sums, {"key": np.array([0, 7]), "x": np.ones(2)}, engine="processes", workers=1)
    monkeypatch.setattr(processes_engine, "ATTEMPTS", 1)
    with pytest.raises(
        RaisedError, match=r"processes crashed \(SIGKILL\); Extent on the arrays ended its process 1 times"
    ):
        noyau.stream(Extent(str(tmp_path / "mark")), {"x": np.ones(2)}, engine="processes", workers=1)
