"""Extensions that a script builds, called with tensors of torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from noyau.errors import BuildError, UnsupportedError
from noyau.sanitizer.scripts import torch_extensions, triton_hooks
from noyau.sanitizer.scripts.record import ScriptSession
from noyau.sanitizer.scripts.torch_extensions import Extensions, is_compiled, stood_in
from noyau.sanitizer.scripts.triton_host import is_marked, mark_tensors

SCRIPT = '''from torch.utils.cpp_extension import load_inline
TEXT = """
__global__ void add(const float *x, const float *y, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}
torch::Tensor fill(torch::Tensor x, torch::Tensor y, torch::Tensor out) {
    TORCH_CHECK(x.is_cuda(), "on a GPU, please");
    add<<<(out.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), out.numel());
    return out;
}
std::vector<torch::Tensor> parts(torch::Tensor x, at::ScalarType type) {
    return {x[1], torch::full({2, 3}, 7, torch::dtype(type).device(x.device())), torch::empty({0, 4}, x.options())};
}
std::vector<torch::Tensor> mixed(torch::Tensor x, torch::Tensor w) {
    auto y = torch::relu(torch::matmul(x, w.t()) - 0.5);
    return {torch::softmax(y, -1) * 2 + y.sum(1, true), std::get<1>(y.max(0)), torch::cat({x, w}, 0), 1.0 / y.mean()};
}
std::vector<torch::Tensor> halves(torch::Tensor x, torch::Tensor out) {
    auto made = torch::empty_like(x);
    for (float *each : {made.data_ptr<float>(), out.data_ptr<float>()})
        add<<<1, 8>>>(x.data_ptr<float>(), x.data_ptr<float>(), each, x.numel() / 2);
    return {made, out};
}
int64_t calls(torch::Tensor x) {
    static int64_t count;
    return ++count;
}
"""
'''
BROKEN = "torch::Tensor fill(torch::Tensor x) { return x }"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    before, folder = Path.cwd(), tmp_path_factory.mktemp("script")
    os.chdir(folder)
    (folder / "script.py").write_text(SCRIPT)
    session = ScriptSession("script.py")
    names, sources = {}, "torch::Tensor fill(torch::Tensor x, torch::Tensor y, torch::Tensor out);"
    exec(SCRIPT, names)
    with stood_in(Extensions(session, folder, 5.0)):
        from torch.utils.cpp_extension import load_inline

        module = load_inline(
            "own",
            ["", sources],
            names["TEXT"],
            functions=["fill", "parts", "mixed", "halves", "calls"],
            extra_cuda_cflags=["-O3"],
        )
    yield session, module
    os.chdir(before)


def test_tensors_are_changed_where_they_lie_and_results_are_the_same_ones(built):
    session, module = built
    wide = mark_tensors(torch.zeros(3, 8))
    x, out = mark_tensors(torch.arange(8.0)), mark_tensors(wide[1])
    version = wide._version
    assert module.fill(x, x, out) is out
    assert wide[1].tolist() == [2.0 * each for each in range(8)]
    assert (wide[0] == 0).all()
    assert wide._version > version
    seen = session.kernels["fill", "script.py"]
    assert (seen.accesses, seen.findings, seen.language) == (24, (), "cuda")
    assert seen.shapes[0].startswith("argument 0: float32[8]")


@pytest.mark.parametrize("which", [0, 1])  # what the function makes, what torch.empty made for it
def test_elements_that_no_thread_wrote_are_told_where_the_host_reads_them(built, which):
    session, module = built
    with triton_hooks.install_hooks(session):
        x, out = torch.ones(8, device="cuda"), torch.empty(8, device="cuda")
        result = module.halves(x, out)[which]
        assert result[:4].tolist() == [2] * 4
        assert session.kernels["halves", "script.py"].findings == ()
        result.tolist()
    (finding,) = session.kernels.pop(("halves", "script.py")).findings
    assert (finding.kind, finding.language) == ("unwritten", "cuda")
    assert finding.message == "4 of 8 cells that the host reads were never stored, [4] first"


def test_results_are_views_or_tensors_of_their_own(built):
    x = mark_tensors(torch.arange(6.0).reshape(3, 2))
    view, own, empty = built[1].parts(x, torch.float16)
    x[1, 0] = 9
    assert view.tolist() == [9, 3]
    assert (own.dtype, own.tolist()) == (torch.float16, [[7, 7, 7]] * 2)
    assert (tuple(empty.shape), is_marked(own)) == ((0, 4), True)


def test_operators_of_torch_between_kernels(built):
    x, w = mark_tensors(torch.arange(12.0).reshape(4, 3) / 7), mark_tensors(torch.eye(3)[:2])
    y = (x @ w.t() - 0.5).relu()
    for got, want in zip(
        built[1].mixed(x, w),
        (y.softmax(-1) * 2 + y.sum(1, True), y.max(0)[1], torch.cat([x, w]), 1 / y.mean()),
        strict=True,
    ):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert torch.allclose(got, want)
    with pytest.raises(UnsupportedError, match="operators on tensors of two dtypes are not computed here"):
        built[1].mixed(x, w.double())


def test_a_call_finds_what_earlier_ones_left_in_statics(built):
    x, y = mark_tensors(torch.ones(5)), mark_tensors(torch.ones(6))
    assert [built[1].calls(each) for each in (x, x, y, x)] == [1, 2, 1, 3]


def test_findings_stand_on_lines_of_the_script(built):
    session, module = built
    x = mark_tensors(torch.arange(64.0))
    module.fill(x, mark_tensors(torch.ones(60)), mark_tensors(torch.zeros(64)))
    (finding,) = session.kernels["fill", "script.py"].findings
    assert (finding.kind, finding.place) == ("out-of-bounds", "script.py:5")
    assert "y at 60, which has 60 cells" in finding.message


def test_what_goes_wrong_is_raised_as_torch_does(built):
    module, x = built[1], mark_tensors(torch.ones(4))
    with pytest.raises(RuntimeError, match="on a GPU, please"):
        module.fill(torch.ones(4), x, x)
    with pytest.raises(TypeError, match="fill takes 3 arguments"):
        module.fill(x)
    with pytest.raises(AttributeError, match="has no function rest"):
        module.rest  # noqa: B018
    with pytest.raises(UnsupportedError, match="a number that is an address is not followed"):
        module.fill(x.data_ptr(), x, x)
    with pytest.raises(UnsupportedError, match=r"complex64, torch.strided is not handed to C"):
        module.fill(x.to(torch.complex64), x, x)


@pytest.mark.skipif(sys.platform != "linux", reason="the heap is read from /proc")
def test_an_address_in_a_low_heap_is_not_followed(built, monkeypatch):
    monkeypatch.setattr(torch_extensions, "_ADDRESS", 1 << 60)
    lines = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    low = next(int(line.partition("-")[0], 16) for line in lines if line.endswith("[heap]"))
    with pytest.raises(UnsupportedError, match="a number that is an address is not followed"):
        built[1].fill(low, 1, 2)
    with pytest.raises(TypeError, match="a tensor is expected, and a whole number is given"):
        built[1].fill(1 << 50, 1, 2)


def test_texts_that_are_not_built(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = ScriptSession("script.py")
    extensions = Extensions(session, tmp_path, 5.0)
    (tmp_path / "own.cu").write_text(f"#include <torch/extension.h>\n{BROKEN}\n")
    with pytest.raises(BuildError, match=r"own.cu:2:\d+: error: "):
        extensions.load("own", ["own.cu"])
    with pytest.raises(UnsupportedError, match=r"own_0.cu: line 1 uses asm: PTX cannot be watched"):
        extensions.load_inline("own", "", '__global__ void f() { asm("ret;"); }', functions="f")
    assert session.kernels["own", "load_inline"].unseen.startswith("own_0.cu: line 1 uses asm")
    assert is_compiled("a/own.cc")
    assert not is_compiled("own.py")
