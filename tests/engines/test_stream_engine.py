import numpy as np
import pytest

import noyau
from noyau.engines import reductions
from noyau.engines.stream import choose_engine, skew
from noyau.errors import CheckError, InputError, MissingExtraError
from noyau.jobs.cli import main
from tests.engines.engine_cases import COLUMNS, Extent, scaled


def test_an_engine_that_is_not_installed_names_its_extra(monkeypatch):
    monkeypatch.setattr("noyau.engines.stream.find_spec", lambda name: None)
    for engine, package in (("dask", "dask"), ("spark", "pyspark"), ("cuda", "torch")):
        with pytest.raises(MissingExtraError, match=rf"engine='{engine}' needs {package}; .*noyau-kernels\[\w+\]"):
            choose_engine(engine, COLUMNS)


def test_what_an_engine_does_not_take_is_refused(tmp_path, capsys):
    with pytest.raises(InputError, match="no engine 'ray': say local, threads, processes, cuda, dask, spark"):
        noyau.stream(Extent, COLUMNS, engine="ray")
    with pytest.raises(InputError, match="chunks that come one after the other cannot go"):
        noyau.stream(Extent, iter([COLUMNS]), engine="processes")
    with pytest.raises(CheckError, match=r"dask: Extent takes its rows in order, .*; say engine='local'"):
        noyau.stream(Extent, COLUMNS, engine="dask", in_order=True)
    collection = type("Frame", (), {"__module__": "dask.dataframe"})()
    with pytest.raises(InputError, match="engine='spark' does not read a collection of dask: say engine='dask'"):
        choose_engine("spark", collection)
    with pytest.raises(InputError, match=r"name a sink that is .npz or .json, not a.parquet"):
        noyau.stream(Extent, COLUMNS, "a.parquet", engine="dask")
    with pytest.raises(InputError, match=r"dask: .*a.csv is written by one process: name x.parquet"):
        noyau.stream(scaled, COLUMNS, tmp_path / "a.csv", engine="dask", arguments={"by": 2.0})
    np.save(tmp_path / "x.npy", COLUMNS["x"])
    (tmp_path / "f.py").write_text("import noyau\n\n\n@noyau.op('f64[n] -> f64')\ndef top(x):\n    return x.max()\n")
    assert main(["stream", f"{tmp_path}/f.py::top", f"{tmp_path}/x.npy", "--engine", "dask"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(COLUMNS["x"].max())


def test_skew_is_told_by_the_longest_part():
    assert skew([("a", 1, 1.0), ("b", 9, 3.0)]) == "2 parts; the longest, b (9 rows), took 1.5 times the mean"


def test_numbers_of_a_result_are_printed_without_their_types():
    result = noyau.stream(reductions.Moments(), {"x": np.arange(5.0)})
    assert str(result).splitlines()[-1] == "{'rows': 5, 'sum': 10.0, 'mean': 2.0, 'variance': 2.0}"
