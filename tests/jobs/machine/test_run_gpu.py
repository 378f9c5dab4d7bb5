from __future__ import annotations

import json

import pytest

from noyau.errors import InputError
from noyau.jobs import cli
from noyau.jobs.machine import run as machine_run
from tests.timing.gpus import made


def test_the_gpu_alone_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.setattr(machine_run, "_gpu", lambda device, *, refresh: made())
    assert cli.main(["machine", "--device", "cuda", "--json", str(tmp_path / "m.json")]) == 0
    told = json.loads((tmp_path / "m.json").read_text())
    assert told["gpu"]["gpu"]["name"] == "NVIDIA Round"
    assert "machine" not in told


@pytest.mark.parametrize("device", ["tpu", "cuda:", "cuda:x", "cuda:0; rm"])
def test_a_device_that_is_none_is_refused(device, capsys):
    assert cli.main(["machine", "--device", device]) == 2
    assert "what can be measured is cpu, cuda, or cuda:1" in capsys.readouterr().err
    with pytest.raises(InputError):
        machine_run.require_device(device)


def test_a_gpu_that_is_not_there_is_one_line(capsys):
    if machine_run.has_driver():
        pytest.skip("there is a driver")
    assert cli.main(["machine", "--device", "cuda"]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert "built without CUDA" in told or "no CUDA device" in told


def test_nobody_asks_for_a_gpu_where_there_is_no_driver(monkeypatch):
    monkeypatch.setattr(machine_run, "has_driver", lambda: False)
    assert machine_run._gpu("", refresh=False) is None
