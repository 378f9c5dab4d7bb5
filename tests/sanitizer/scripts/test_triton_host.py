from __future__ import annotations

import textwrap
from importlib import import_module
from types import SimpleNamespace

import pytest

from noyau.errors import MissingExtraError
from noyau.jobs.check.script_run import check_script
from noyau.sanitizer.scripts import triton_host

SCRIPT = """
    import torch
    import triton
    import triton.language as tl
    from triton.testing import do_bench

    device = triton.runtime.driver.active.get_active_torch_device()
    found = triton.runtime.driver.active.utils.get_device_properties(device.index)
    assert found["multiprocessor_count"] == 2
    assert triton.runtime.driver.active.get_current_target().backend == "cuda"

    assert torch._C._dynamo.guards._empty_strided_cuda((2, 3), (3, 1), torch.float16).is_cuda

    @triton.jit
    def double(x, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

    x, bias = torch.ones(3000, 64, device=device).half(), torch.zeros(64, device=device).half().requires_grad_()
    torch.nn.functional.layer_norm(x, (64,), None, bias).backward(0.1 * x)
    assert bias.is_cuda and abs(bias.grad.double() - 3000 * 0.1).max() < 0.2  # where sums of halves stay at 256

    @triton.autotune(configs=[triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 8})], key=["n"])
    @triton.jit
    def narrow(x, n, BLOCK: tl.constexpr):
        tl.static_assert(BLOCK <= 8)
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + at, 1.0, mask=at < n)

    narrow[lambda meta: (triton.cdiv(20, meta["BLOCK"]),)](torch.zeros(20, device=device), 20)

    kernel = double.warmup(torch.float32, 5, BLOCK=8, grid=(1,))
    kernel._init_handles()
    assert (1 << 16) // (kernel.n_regs * 32 * 8) and (1 << 18) // kernel.metadata.shared
    from triton._C.libtriton import nvidia
    c = torch.empty(2, 3, device=device)
    nvidia.cublas.CublasLt(torch.empty(4, device=device)).matmul(torch.ones(2, 4), torch.ones(3, 4), c)
    assert c.tolist() == [[4.0] * 3] * 2
    x = torch.ones(5, device=device)
    low, middle = do_bench(lambda: double[(1,)](x, 5, BLOCK=8), quantiles=[0.2, 0.5])
    assert x.tolist() == [2.0] * 5 and low == middle > 0
    assert triton.testing.do_bench(lambda: None, return_mode="all")[0] >= 0

    @triton.testing.perf_report(triton.testing.Benchmark(
        x_names=["n"], x_vals=[2**k for k in range(3, 30)], line_arg="which", line_vals=["a", "b"],
        line_names=["A", "B"], plot_name="doubles", args={"BLOCK": 8}))
    def benchmark(n, which, BLOCK):
        y = torch.ones(n, device=device)
        return triton.testing.do_bench(lambda: double[(triton.cdiv(n, BLOCK),)](y, n, BLOCK=BLOCK))

    benchmark.run(print_data=True, show_plots=True, save_path="nowhere")
"""


def test_what_a_script_says_beside_its_launches(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    found = check_script(path)
    assert found.fault == ""
    assert [(each.name, each.calls) for each in found.kernels] == [("narrow", 2), ("double", 3)]
    assert found.notes == ("of benchmark doubles only its first size was run (n = 8)",)
    assert found.ok


class Mark:
    def __init__(self, fn, benchmarks):
        self.fn, self.benchmarks = fn, benchmarks


def shown(mark, monkeypatch, *, missing=()):
    """What a run gives of which a data frame is asked for, where Triton's own tells what it is asked."""
    monkeypatch.setattr(triton_host, "find_spec", lambda name: None if name in missing else True)
    plain = lambda mark, **named: (mark.benchmarks.x_vals, mark.benchmarks.plot_name, named)  # noqa: E731
    return triton_host._run_mark(mark, print, plain, True, True, "somewhere", return_df=True, diff_col=True)


def test_data_frames_are_tritons_own_of_the_first_size(monkeypatch):
    bench = SimpleNamespace(x_vals=[8, 9], x_names=["n"], plot_name="it")
    row = ([8], "", {"return_df": True, "diff_col": True})
    assert shown(Mark(print, bench), monkeypatch) == row
    assert shown(Mark(print, [bench, bench]), monkeypatch) == [row, row]
    assert bench.x_vals == [8, 9]


def test_data_frames_that_cannot_be_made_are_refused(monkeypatch):
    bench = SimpleNamespace(x_vals=[8], x_names=["n"], plot_name="it")
    with pytest.raises(MissingExtraError, match=r"pandas is not installed; run: pip install pandas$"):
        shown(Mark(print, bench), monkeypatch, missing=("pandas",))


def test_functions_that_triton_has_no_longer_are_there_for_a_script():
    name = "triton.ops.matmul_perf_model"
    with triton_host.triton_stood_in(lambda line: None):
        module = import_module(name)
        assert module.early_config_prune([1, 2], {}) == [1, 2]
        assert module.estimate_matmul_time(M=1) == 1.0
    with pytest.raises(ModuleNotFoundError):
        import_module(name)
