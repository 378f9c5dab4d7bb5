"""Tests of the callers of user kernels: which arrays each takes, on which device."""

import pytest

from noyau.kernels.call import CALLERS, caller_of, is_launched_here
from noyau.kernels.user_kernel import Target, Usage, UserKernel
from noyau.toolchain.guard_zones import LAYOUTS
from noyau.workers.nvml import has_driver


def kernel_in(language: str) -> UserKernel:
    return UserKernel("f", language, "", "f", "a text", Target("op", None, {}), Usage())


@pytest.mark.parametrize("language", ["c", "numba", "python"])
def test_kernels_of_the_cpu_take_arrays_and_no_tensors_of_a_gpu(language):
    assert caller_of(kernel_in(language)) is CALLERS[language]
    assert caller_of(kernel_in(language), gpu=True) is None


def test_kernels_in_triton_take_tensors_of_a_gpu():
    assert caller_of(kernel_in("triton"), gpu=True) is CALLERS["triton"]
    assert caller_of(kernel_in("triton")) is None


@pytest.mark.parametrize("language", ["cuda", "numba_cuda"])
def test_kernels_of_a_grid_take_tensors_of_a_gpu_and_run_where_there_is_a_driver(language):
    assert caller_of(kernel_in(language), gpu=True) is CALLERS[language]
    assert caller_of(kernel_in(language)) is None
    assert is_launched_here(kernel_in(language)) is has_driver()


@pytest.mark.parametrize("gpu", [False, True])
def test_kernels_that_run_under_the_sanitizer_alone_have_no_caller(gpu):
    assert caller_of(kernel_in("cpp"), gpu=gpu) is None


def test_a_kernel_of_python_takes_every_layout_and_one_in_c_packed_arrays():
    assert CALLERS["numba"].layouts(kernel_in("numba")) == tuple(LAYOUTS)
    assert CALLERS["c"].layouts(kernel_in("c")) == ()


def test_a_driver_without_a_torch_that_has_cuda_runs_no_kernel_of_cuda(monkeypatch):
    """And the interpreter of Triton is not the machine of their check."""
    import torch

    monkeypatch.setattr("noyau.kernels.call.has_driver", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for language in ("cuda", "numba_cuda"):
        assert CALLERS[language].compiler() == "" and not CALLERS[language].runs_here()
    assert CALLERS["triton"].compiler().endswith(", interpreted")
    monkeypatch.setattr("noyau.kernels.call.find_spec", lambda name: None)
    assert CALLERS["cuda"].compiler() == ""


def test_the_compiler_of_a_kernel_is_part_of_what_a_check_depends_on(monkeypatch):
    from noyau.errors import BuildError
    from noyau.toolchain.c import compiler as c_compiler

    assert CALLERS["c"].compiler() == c_compiler.find_compiler().version

    def missing(name=None):
        raise BuildError("no C compiler")

    monkeypatch.setattr(c_compiler, "find_compiler", missing)
    assert (CALLERS["c"].compiler(), CALLERS["python"].compiler()) == ("none", "")
