from __future__ import annotations

import textwrap

import pytest

from noyau.jobs.check.script_run import check_script

SCRIPT = """
    import torch
    import triton
    import triton.language as tl

    DEVICE = triton.runtime.driver.active.get_active_torch_device()

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < n
        tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)  # last

    @triton.jit
    def unguarded(x, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + at, 1.0)  # past

    @triton.jit
    def count(hist, x, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        bins = hist + tl.load(x + at, mask=at < n, other=0)
        tl.store(bins, tl.load(bins, mask=at < n) + 1, mask=at < n)  # meet

    @triton.jit
    def total(x, s, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.atomic_add(s, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))  # unset

    @triton.jit
    def filled_by_host(x, s, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.atomic_add(s, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))

    @triton.jit
    def hidden(x, s, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.atomic_add(s, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))  # still

    @triton.jit
    def lower(x, out, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(out + at, tl.where(at < 10, tl.load(x + at), 0.0))  # aside

    @triton.jit
    def of_table(table, out, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        x = tl.load(table).to(tl.pointer_type(tl.float32))
        tl.store(out + at, tl.load(x + at, mask=at <= 100, other=0))  # beyond

    class Part:
        def __init__(self, whole, start):
            self.whole, self.dtype, self.start = whole, whole.dtype, start

        def data_ptr(self):
            return self.whole.data_ptr() + 4 * self.start

    @triton.autotune(configs=[triton.Config({"BLOCK": size}) for size in (32, 64)], key=["n"])
    @triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
    @triton.jit
    def tuned(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, 2 * tl.load(x + at, mask=EVEN | (at < n)), mask=EVEN | (at < n))

    x = torch.arange(100, device="cuda", dtype=torch.float32)
    y = torch.ones(100).cuda()
    assert x.is_cuda and x.device == y.device == DEVICE and x.cpu().device.type == "cpu"
    out = torch.empty_like(x)
    add[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, y, out, 100, BLOCK=32)
    print("right", torch.equal(out, x + 1))
    whole = torch.zeros(200, device=DEVICE)
    add[(4,)](x, y, Part(whole, 100), 100, BLOCK=32)
    assert torch.equal(whole[100:], x + 1) and not whole[:100].any()
    table = torch.tensor([x.data_ptr(), x.data_ptr()], device=DEVICE)
    of_table[(1,)](table, torch.empty(128, device=DEVICE), BLOCK=128)
    few = torch.empty(32, device=DEVICE)
    add[(1,)](x, y, few, 10, BLOCK=32)
    lower[(1,)](few, torch.empty(32, device=DEVICE), BLOCK=32)
    short = torch.empty(100, device=DEVICE)
    add[(3,)](x, y, short, 100, BLOCK=32)
    print("some", short[:96].sum().item())
    short.cpu()
    unguarded[(4,)](y, 100, BLOCK=32)
    hist = torch.zeros(4, dtype=torch.int32, device="cuda")
    count[(4,)](hist, torch.zeros(100, dtype=torch.int32, device="cuda"), 100, BLOCK=32)
    total[(1,)](x, torch.empty(1, device="cuda"), 100, BLOCK=128)
    filled = torch.empty(1, device="cuda")
    filled.zero_()
    total[(1,)](x, filled, 100, BLOCK=128)
    shared = torch.empty(1, device=DEVICE)
    shared.data.fill_(0)
    filled_by_host[(1,)](x, shared, 100, BLOCK=128)
    viewed = torch.empty(1)
    viewed.numpy()[:] = 0
    filled_by_host[(1,)](x, viewed, 100, BLOCK=128)
    named = torch.empty(1)
    named.requires_grad_(False)
    hidden[(1,)](x, named, 100, BLOCK=128)
    tuned[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, out, 100)
    print("tuned", torch.equal(out, 2 * x), tuned.best_config.kwargs["BLOCK"] in (32, 64))
    unguarded.warmup(x, 100, BLOCK=32, grid=(1,))[(1,)](x[:64], 64, BLOCK=64)
    unguarded[(1,)](x[10:], 64, BLOCK=64)
    sparse = torch.eye(4).to_sparse_csr().cuda()  # has no storage of its own
    assert sparse.values().is_cuda and torch.equal(sparse.to_dense().cpu(), torch.eye(4))
    half = torch.zeros(64, dtype=torch.bfloat16, device="cuda")
    unguarded[(1,)](half, 64, BLOCK=64)
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    path = tmp_path_factory.mktemp("triton") / "script.py"
    path.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    return path, check_script(path)


def line_with(path, mark):
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def test_every_launch_is_watched_and_gives_what_it_should(checked):
    path, found = checked
    assert found.fault == ""
    seen = {(each.kernel, each.kind, each.place) for each in found.findings if each.kind != "unwritten"}
    assert seen == {
        ("unguarded", "out-of-bounds", f"{path}:{line_with(path, 'past')}"),
        ("of_table", "out-of-bounds", f"{path}:{line_with(path, 'beyond')}"),
        ("count", "race", f"{path}:{line_with(path, 'meet')}"),
        ("total", "uninitialised", f"{path}:{line_with(path, 'unset')}"),
        ("hidden", "uninitialised", f"{path}:{line_with(path, 'still')}"),
        ("lower", "uninitialised", f"{path}:{line_with(path, 'aside')}"),
    }
    mild = {each.kernel: each.message for each in found.findings if each.severity == "warning"}
    assert mild["lower"].endswith("which nobody wrote before (22 times); no result depends on it")
    assert not {"total", "hidden"} & mild.keys()
    kernels = {each.name: each for each in found.kernels}
    assert kernels["add"].calls == 4
    assert kernels["tuned"].shapes == (
        "x: float32[100], out: float32[100], n = 100, BLOCK = 32, EVEN = False",
        "x: float32[100], out: float32[100], n = 100, BLOCK = 64, EVEN = False",
    )
    assert kernels["unguarded"].notes == ()


def test_cells_that_the_host_reads_and_nobody_stored(checked):
    path, found = checked
    (finding,) = [each for each in found.findings if each.kind == "unwritten"]
    assert (finding.kernel, finding.language) == ("add", "triton")
    assert finding.place == f"{path}:{line_with(path, 'last')}"
    assert finding.message == "4 of 100 cells that the host reads were never stored, [96] first"
    programs = "launch enough programs for the last cells: triton.cdiv(n, BLOCK)"
    assert finding.mend == f"{programs}; let the indices and the mask of the store reach every cell"


KEPT = """
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def keep(x, out, count, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        values = tl.load(x + at, mask=at < n, other=0.0)
        kept = (values > 0).to(tl.int32)
        base = tl.atomic_add(count, tl.sum(kept, 0))
        tl.store(out + base + tl.cumsum(kept, 0) - 1, values, mask=kept > 0)

    x = torch.arange(-30.0, 70.0, device="cuda")
    out, count = torch.empty_like(x), torch.full((1,), START, dtype=torch.int32, device="cuda")
    keep[(4,)](x, out, count, 100, BLOCK=32)
    assert len(out.cpu()[START : int(count)]) == 69
"""


@pytest.mark.parametrize("start", [0, 1])
def test_the_rest_of_a_result_that_is_counted_is_not_missed(tmp_path, start):
    (path := tmp_path / "script.py").write_text(textwrap.dedent(KEPT.replace("START", str(start))), "utf-8")
    found = check_script(path)
    assert (found.fault, [each.kind for each in found.findings]) == ("", ["unwritten"] * start)


LEFT_OUT = """
    from contextlib import nullcontext, suppress
    from unittest import mock
    import torch
    import triton
    import triton.language as tl
    from noyau.sanitizer.engine import Shadow

    @triton.jit
    def even(x, a, b, c, d, e, f, n, BLOCK: tl.constexpr):
        at = 2 * tl.arange(0, BLOCK)
        tl.store(x + at, 1.0, mask=at < n)  # even

    full = mock.patch.object(Shadow, "memory", side_effect=MemoryError("no room"))
    with IN:
        out = torch.empty(100, device="cuda")
        with suppress(MemoryError):
            even[(1,)](out, 1, 2, 3, 4, 5, 6, 100, BLOCK=64)
        out.sum().item()
"""


def test_cells_between_others_that_nobody_stored(tmp_path):
    (path := tmp_path / "script.py").write_text(textwrap.dedent(LEFT_OUT.replace("IN", "nullcontext()")), "utf-8")
    found = check_script(path)
    (finding,) = found.findings
    assert (finding.kind, finding.place) == ("unwritten", f"{path}:{line_with(path, 'even')}")
    assert finding.message == "50 of 100 cells that the host reads were never stored, [1] first"
    assert finding.mend == "let the indices and the mask of the store reach every cell"
    shapes = "x: float32[100], a = 1, b = 2, c = 3, d = 4, e = 5 and 3 more"
    assert found.kernels[0].shapes == (shapes,)


def test_a_launch_without_memory_for_its_shadow_leaves_no_cells_unwritten(tmp_path):
    (path := tmp_path / "script.py").write_text(textwrap.dedent(LEFT_OUT.replace("IN", "full")), "utf-8")
    found = check_script(path)
    assert found.kernels[0].unseen.endswith("no room")
    assert not found.findings
    assert not found.is_verified


REFUSED = """
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def refused(x, out, n, BLOCK: tl.constexpr):
        pid = tl.program_id(0)
        at = pid * BLOCK + tl.arange(0, BLOCK)
        loaded = tl.load(x + at)  # past
        tl.store(out + tl.arange(0, BLOCK), loaded)  # meet
        if pid == 3:
            loaded = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [loaded], tl.float32, is_pure=True, pack=1)
            tl.store(out + at, loaded)

    refused[(4,)](torch.ones(100, device="cuda"), torch.empty(128, device="cuda"), 100, BLOCK=32)
    print("goes on")
"""


def test_what_was_found_before_a_launch_is_refused_is_told(tmp_path, capfd):
    (path := tmp_path / "script.py").write_text(textwrap.dedent(REFUSED), "utf-8")
    found = check_script(path)
    assert capfd.readouterr().out == "goes on\n"
    places = {(each.kind, each.place) for each in found.errors}
    assert places == {
        (kind, f"{path}:{line_with(path, mark)}") for kind, mark in (("out-of-bounds", "past"), ("race", "meet"))
    }
    assert "inline_asm" in found.kernels[0].unseen
    assert not found.is_verified


@pytest.mark.long
def test_what_it_prints(checked, capfd):
    path, _ = checked
    found = check_script(path, launch=((5,), (1,)))  # five programs of each
    printed = capfd.readouterr().out
    assert "right True" in printed
    assert "tuned True True" in printed
    assert not [each for each in found.findings if each.kind == "unwritten"]


GRADIENT = """
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def summed(dy, dw, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.atomic_add(dw + at % 4, tl.load(dy + at, mask=at < n), mask=at < n)

    class Spread(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w):
            ctx.save_for_backward(w)
            return w.repeat(8)

        @staticmethod
        def backward(ctx, dy):
            dw = torch.EMPTY_like(ctx.saved_tensors[0])
            assert dw.is_cuda
            summed[(2,)](dy.contiguous(), dw, 32, BLOCK=16)
            return dw

    w = torch.ones(4, device="cuda", requires_grad=True)
    Spread.apply(w).sum().backward()
    torch.autograd.grad(Spread.apply(w).sum(), w)
    print(w.grad.sum() > 0)
"""


CHAIN = """
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def double(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, lengths):
            out = torch.empty_like(x)
            double[(2,)](x, out, x.numel(), BLOCK=16)
            ctx.save_for_backward(out, lengths)
            return out

        @staticmethod
        def backward(ctx, dy):
            (out, lengths), dx = ctx.saved_tensors, torch.empty_like(dy)
            assert out.is_cuda and dy.is_cuda and not lengths.is_cuda and out.stride(0) > 0
            double[(2,)](dy.contiguous(), dx, dy.numel(), BLOCK=16)
            return dx, None

    x, lengths = torch.ones(5, 5, device="cuda", requires_grad=True), torch.tensor([5, 5])
    Double.apply(Double.apply(x, lengths).view(25), lengths).sum().backward()
    assert x.grad.tolist() == [[4.0] * 5] * 5
"""


def test_what_the_engine_hands_to_a_gradient_lies_on_the_gpu(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(CHAIN), encoding="utf-8")
    found = check_script(path)
    assert (found.fault, found.findings) == ("", ())
    assert [(each.name, each.calls) for each in found.kernels] == [("double", 4)]


@pytest.mark.parametrize(("empty", "kinds"), [("zeros", set()), ("empty", {"uninitialised"})])
def test_gradients_are_watched_as_they_are_computed(tmp_path, empty, kinds):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(GRADIENT.replace("EMPTY", empty)), encoding="utf-8")
    found = check_script(path)
    assert found.fault == "" and found.kernels[0].calls == 2
    assert {each.kind for each in found.errors} == kinds


RETURNED = """
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def shifted(x, y, z, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        value = tl.load(x + at, mask=at < n)
        tl.store(y + at, value + 1, mask=at < n)
        tl.store(z + at, 2 * value, mask=at < n)

    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y, z = torch.empty_like(x), torch.empty_like(x)
            shifted[(1,)](x, y, z, 4, BLOCK=4)
            ctx.save_for_backward(y)
            return y, z

        @staticmethod
        def backward(ctx, dy, dz):
            y, = ctx.saved_tensors
            assert y.is_cuda and y.view(2, 2).is_cuda and dy.is_cuda and dz.device.type == "cuda"
            assert not torch.zeros(2).is_cuda
            return dy * y + 2 * dz

    x = torch.ones(4, device="cuda", requires_grad=True)
    y, z = Both.apply(x)
    y.backward(torch.ones_like(y), retain_graph=True)
    (y + z).sum().backward()
    assert x.grad.tolist() == [6, 6, 6, 6] and not torch.ones(4).is_cuda
"""


def test_saved_results_and_gradients_of_the_engine_lie_on_the_gpu(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(RETURNED), encoding="utf-8")
    found = check_script(path)
    assert (found.fault, found.errors, found.kernels[0].calls) == ("", (), 1)
