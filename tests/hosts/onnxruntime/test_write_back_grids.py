"""Operators of CUDA's provider in a library: registered, and launched up to the driver, which stands in for one without
a GPU; tests/hosts/onnxruntime/test_write_back_grids_gpu.py has the real one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.hosts.onnxruntime.grids import CODES, GPU, OPS, driver, library, rms, run

X, W = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones(4, np.float32)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def own():
    return library(CODES)


def test_a_kernel_is_launched_on_the_stream_of_its_context(own, place, tmp_path):
    got = run(own, "rms", [X, W], tmp_path, stands_in=place)
    assert (got.status, got.failure) == (0, "")
    loaded, *launches = got.notes
    assert loaded == "load machine code"
    assert launches == ["launch rms_0 1 32 8"] * 2  # code is loaded once
    assert got.outputs[0].shape == (3, 4)
    assert got.memory == (0, 0, -2)  # tensors on the GPU; what a body alone reads on the host


def test_scratch_comes_and_goes_with_the_stream(own, place, tmp_path):
    got = run(own, "whole", [np.ones(100000, np.float32)], tmp_path, stands_in=place)
    assert got.status == 0
    taken = [each for each in got.notes if each.startswith("take")]
    assert taken
    assert got.notes.count("give back") == len(taken)
    assert got.notes[1].startswith("take")
    assert got.notes[-1] == "give back"


def test_nothing_is_launched_for_no_items(own, place, tmp_path):
    got = run(own, "rms", [X[:0], W], tmp_path, stands_in=place)
    assert (got.status, got.notes) == (0, ("load machine code",))
    assert got.outputs[0].shape == (0, 4)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_same_library_serves_the_cpu(op, own, tmp_path):
    arrays = [X, W] if op is rms else [X] if op.name == "total" else [X.ravel()]
    got = run(own, op.name, arrays, tmp_path, provider="cpu")
    np.testing.assert_allclose(got.outputs[0], op.reference(*arrays), rtol=1e-6)
    assert got.memory[-1] == -2


@pytest.mark.parametrize(("capability", "loads"), [("80", "machine code"), ("86", "machine code"), ("120", "PTX")])
def test_code_of_the_generation_comes_first_and_ptx_for_newer_ones(capability, loads, own, place, tmp_path):
    got = run(own, "rms", [X, W], tmp_path, stands_in=place, NOYAU_CAPABILITY=capability)
    assert got.notes[0] == f"load {loads}"


@pytest.mark.parametrize(
    ("named", "says"),
    [
        (
            {"NOYAU_CAPABILITY": "75"},
            "noyau::rms: the library has no code for sm_75, it has sm_80, sm_90, compute_90: build it with "
            "--target sm_75, or leave it out, and the model runs without it",
        ),
        (
            {"NOYAU_FAULT": "cuStreamGetCtx"},
            "noyau::rms: cuStreamGetCtx of CUDA's driver ends with CUDA_ERROR_ILLEGAL_ADDRESS (700)",
        ),
        ({"NOYAU_FAULT": "cuLaunchKernel"}, "noyau::rms: cuLaunchKernel of CUDA's driver ends with CUDA_ERROR_ILLEG"),
    ],
)
def test_what_does_not_run_is_one_line(named, says, own, place, tmp_path):
    got = run(own, "rms", [X, W], tmp_path, stands_in=place, **named)
    assert got.status == 1
    assert got.failure.partition(": ")[2].startswith(says)
    assert len(got.failure.splitlines()) == 1


def test_memory_that_is_not_there_is_one_line(own, place, tmp_path):
    big = np.ones(100000, np.float32)
    got = run(own, "whole", [big], tmp_path, stands_in=place, NOYAU_FAULT="cuMemAllocAsync")
    assert "noyau::whole: cuMemAllocAsync of CUDA's driver ends with" in got.failure
    assert not any(each.startswith("launch") for each in got.notes)


def test_a_shape_that_does_not_fit_is_named_before_any_launch(own, place, tmp_path):
    got = run(own, "rms", [X, W[:3]], tmp_path, stands_in=place)
    assert "noyau::rms: input 1 of shape [3] does not fit the operator and its other inputs" in got.failure
    assert got.notes == ("load machine code",)


def test_an_old_driver_is_named(own, tmp_path):
    got = run(own, "rms", [X, W], tmp_path, stands_in=driver(tmp_path, "-DOLD_DRIVER"))
    says = "noyau::rms: the CUDA driver has no cuLibraryLoadData: it needs one of CUDA 12 or newer"
    assert got.failure.endswith(says)


def test_code_that_the_driver_refuses_is_named(place, tmp_path):
    got = run(library({"compute_90": b"no PTX"}), "rms", [X, W], tmp_path, stands_in=place)
    assert got.failure.endswith("cuLibraryLoadData of CUDA's driver ends with CUDA_ERROR_INVALID_IMAGE (200)")


def test_without_a_driver_the_library_opens_and_says_what_is_missing(own, tmp_path):
    got = run(own, "rms", [X, W], tmp_path, stands_in=tmp_path)
    assert "noyau::rms: there is no CUDA driver here (libcuda.so.1: " in got.failure
    assert got.failure.endswith("leave the library out, and the model runs without it")


def test_each_operator_is_one_of_both_providers(own, place, tmp_path):
    got = run(own, "nothing", [X], tmp_path, provider=GPU, stands_in=place)
    assert "no nothing of CUDAExecutionProvider among 6 operators" in got.failure
