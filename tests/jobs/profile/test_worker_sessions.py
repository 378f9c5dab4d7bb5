from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import InputError
from noyau.hosts.onnxruntime.sessions import OPTIMIZED, WEIGHTS, open_session
from noyau.jobs.profile.worker_sessions import run_once, time_runs, weigh_runs
from noyau.workers.array_files import write_arrays
from tests.small_models import BARE, KINDS, arrays_for, twice, written


def opened(model, folder, trace=None):
    path = written(model, folder)
    inputs = write_arrays(arrays_for(model), folder)
    return time_runs(path, inputs, folder=None, threads=1, prepacked=True, optimized=True, trace=trace)


def test_a_session_says_how_long_its_runs_last(tmp_path):
    made = opened(twice(), tmp_path)
    assert made.lasts(3) > 0
    assert made.tell() == {"trace": None}


def test_a_traced_one_leaves_what_the_profiler_and_the_optimizer_made(tmp_path):
    made = opened(twice(), tmp_path, tmp_path)
    trace = made.tell()["trace"]
    assert (tmp_path / trace).exists()
    assert (tmp_path / OPTIMIZED).exists()
    assert not (tmp_path / WEIGHTS).exists()  # 144 bytes are not worth a file


@pytest.mark.parametrize("kind", ["sequence out", "float16", "loop", "random"])
def test_ends_of_every_kind_run(kind, tmp_path):
    assert opened(KINDS[kind], tmp_path).lasts(1) > 0


def test_a_process_is_weighed(tmp_path):
    steps = weigh_runs(written(twice(), tmp_path), write_arrays(arrays_for(twice()), tmp_path), 1, True)
    assert list(steps) == ["started", "opened", "opening", "running"]
    assert all(step is not None and step > 1 << 20 for step in steps.values())
    assert steps["opening"] >= steps["opened"]


def test_strings_and_sequences_run_once():
    session = open_session(BARE["strings alone"].SerializeToString())
    run_once(session, {"s": np.array(["a", "b"], object)})
    with pytest.raises(InputError, match="onnxruntime does not run: "):
        run_once(session, {"t": np.array(["a", "b"], object)})
    run_once(open_session(KINDS["sequence out"].SerializeToString()), arrays_for(KINDS["sequence out"]))
    with pytest.raises(InputError, match="onnxruntime does not run: "):
        run_once(open_session(twice().SerializeToString()), {"x": np.ones((2, 7), np.float32)})
