"""Modules on a CUDA device: run by hand where there is one, pytest -m gpu."""

from __future__ import annotations

import gc
from dataclasses import replace
from threading import Event, Thread

import pytest
import torch

import noyau
from noyau.errors import InputError
from noyau.hosts.torch.modules import cuda_graph, flat_codegen
from noyau.hosts.torch.modules.cuda_graph import GraphReplay
from noyau.jobs.optimize.cuda import saved_kernels
from noyau.jobs.optimize.torch import backend as torch_backend
from noyau.jobs.optimize.torch.backend import backend
from tests.jobs.optimize.torch.modules import ALL, Block, compiled

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
NEAR = {torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}


@pytest.fixture(autouse=True)
def whoever_else_is_at_work(monkeypatch):
    """Nobody: what is recorded does not hang on how long the GPU takes beside other processes."""
    monkeypatch.setattr(cuda_graph, "SLOWER", float("inf"))


def off(got, want):
    return float((got.double() - want.double()).norm() / want.double().norm())


@pytest.mark.parametrize("dtype", NEAR)
def test_forward_and_backward(dtype, monkeypatch):
    made = []
    flat = flat_codegen.flat
    monkeypatch.setattr(flat_codegen, "flat", lambda *given, **more: made.append(flat(*given, **more)) or made[-1])
    module, x = Block(64).to("cuda", dtype), torch.randn(3, 17, 64, device="cuda", dtype=dtype)
    run, record = compiled(module)
    for _ in range(3):
        module.zero_grad()
        sum(each.float().square().mean() for each in run(x)).backward()
    got = [each.grad.clone() for each in module.parameters()]
    module.zero_grad()
    sum(each.float().square().mean() for each in module(x)).backward()
    assert max(off(one, each.grad) for one, each in zip(got, module.parameters(), strict=True)) < NEAR[dtype]
    assert [graph.kind for graph in record.graphs] == ["forward", "backward"]
    assert all(graph.kept for graph in record.graphs)
    assert all(".data_ptr(), " in each.flat.text for each in made)


@pytest.mark.parametrize("shape", [(4, 50257), (200, 20011)], ids=["shared by programs", "in tiles"])
def test_long_rows(shape):
    x = torch.randn(shape, device="cuda")
    run, record = compiled(lambda x: torch.log_softmax(x * 0.7, -1))
    with torch.no_grad():
        assert off(run(x), torch.log_softmax(x.double() * 0.7, -1)) < 1e-6
    (graph,) = record.graphs
    assert [one.reason for one in graph.candidates] == [""]


def test_other_layouts_of_arguments_and_streams():
    base = torch.randn(1 + 8 * 64, device="cuda")
    run, _ = compiled(lambda x: torch.softmax(x * 2, -1) + 1)
    for x in (base[:-1].view(8, 64), base[1:].view(8, 64), base[:-1].view(8, 64)):
        assert off(run(x), torch.softmax(x * 2, -1) + 1) < 1e-6
    with torch.cuda.stream(torch.cuda.Stream()):
        assert off(run(x), torch.softmax(x * 2, -1) + 1) < 1e-6
        torch.cuda.synchronize()


def test_a_module_is_optimised_saved_and_loaded(tmp_path, monkeypatch):
    flats = []
    module, x = Block(64).cuda(), torch.randn(3, 17, 64, device="cuda")
    made = noyau.optimize(module, x, keep="all", certificate="smoke")
    assert {one.language for one in made.report.kernels} == {"triton"}
    with torch.no_grad():
        want = module(x)
        assert max(map(off, made(x), want)) < 1e-5
        made.save(tmp_path / "m.noyau")
        loaded = noyau.load(tmp_path / "m.noyau")
        flat = flat_codegen.flat
        monkeypatch.setattr(saved_kernels, "flat", lambda *given: flats.append(flat(*given)) or flats[-1])
        for scale in range(8):  # and is recorded meanwhile
            assert max(map(off, loaded(x * scale), module(x * scale))) < 1e-5
    assert ".data_ptr(), " in flats[0].flat.text
    assert flats[0].flat.known.recorded is not None


class Plain(torch.nn.Module):
    """A kernel of noyau's, and a function of torch's on a view."""

    def forward(self, x):
        return torch.relu(x * 2 + 1) * x, torch.sort(x.transpose(0, 1), 0)[0]


LYING = {
    "packed": lambda x: x,
    "transposed": lambda x: x.t().contiguous().t(),
    "every second": lambda x: x.repeat_interleave(2, 1)[:, ::2],
    "negated": lambda x: torch.complex(x, -x).conj().imag,
}


@pytest.mark.parametrize("noted", ["packed", "transposed", "every second"])
def test_a_loaded_module_takes_arguments_that_lie_otherwise(tmp_path, noted):
    x = torch.randn(64, 96, device="cuda")
    noyau.optimize(Plain(), LYING[noted](x), keep="all", certificate="smoke").save(tmp_path / "m.noyau")
    loaded = noyau.load(tmp_path / "m.noyau")
    with torch.no_grad():
        for name in [noted] * 8 + [*LYING] * 2:
            given = LYING[name](x)
            assert max(map(off, loaded(given), Plain()(given.double()))) < 1e-5


class Counting(torch.nn.Module):
    """Many small steps, a counter and a cache that go on."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64, 64, device="cuda") / 8)

    def forward(self, x, begin, cache):
        at = torch.arange(1, device="cuda") + begin
        begin.add_(1)
        for _ in range(20):
            x = torch.softmax(x @ self.weight, -1) * 8 + x
        cache.index_copy_(0, at, x)
        return cache.sum(0)


@pytest.mark.parametrize("graphs", [True, False])
def test_a_step_of_many_launches_is_recorded(graphs, monkeypatch):
    made = []
    flat = flat_codegen.flat
    monkeypatch.setattr(flat_codegen, "flat", lambda *given, **more: made.append(flat(*given, **more)) or made[-1])
    module, x = Counting(), torch.randn(1, 64, device="cuda")
    run, _ = compiled(module, replace(ALL, graphs=graphs))
    sides = [(torch.tensor(0, device="cuda"), torch.zeros(32, 64, device="cuda")) for _ in range(2)]
    with torch.no_grad():
        for number in range(12):
            token = x * number
            assert off(run(token, *sides[0]), module(token, *sides[1])) < 1e-5
            kept = [run(token, *sides[0]), module(token, *sides[1])]
        assert off(*kept) < 1e-5
    assert sides[0][0].item() == sides[1][0].item() == 24
    assert bool(getattr(made[0].flat.known, "recorded", None)) is graphs


class Attended(torch.nn.Module):
    """Attention with a mask that it writes down, a tied matrix, and a state that training changes."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64, 64) / 8)
        self.register_buffer("seen", torch.zeros(64))

    def forward(self, x):
        self.seen.mul_(0.9).add_(x.detach().mean((0, 1)), alpha=0.1)
        steps = torch.tensor([0.5, 0.25, 0.125, 0.0], device=x.device)
        heads = (x @ self.weight).unflatten(-1, (4, 16)).transpose(1, 2)
        places = torch.arange(x.shape[1], device=x.device)
        mask = -(places[:, None] - places).abs() * steps[:, None, None]
        mixed = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)
        return (mixed.transpose(1, 2).flatten(2) @ self.weight.t() + x).square().mean()


def test_a_training_step_with_attention_is_recorded_though_its_losses_are_kept(monkeypatch):
    made = []
    flat = flat_codegen.flat
    monkeypatch.setattr(flat_codegen, "flat", lambda *given, **more: made.append(flat(*given, **more)) or made[-1])
    one = Attended().to("cuda")
    other = Attended().to("cuda")
    other.load_state_dict(one.state_dict())
    run, losses = torch.compile(one, backend=backend, options={"keep": "all"}), []
    for number in range(40):
        x = torch.randn(3, 16, 64, device="cuda", generator=torch.Generator("cuda").manual_seed(number))
        for module, each in ((one, run), (other, other)):
            if number % 3 != 1:  # elsewhere gradients of two steps add up
                module.zero_grad()
            losses.append(each(x))
            losses[-1].backward()
        assert off(one.weight.grad, other.weight.grad) < 2e-5 and off(one.seen, other.seen) < 1e-5
        torch.cuda.synchronize()
    assert all(off(got, want) < 1e-5 for got, want in zip(losses[::2], losses[1::2], strict=True))
    assert [each.flat.known.recorded is not None for each in made] == [True, True]


def recordings_of(function, *given, calls=8):
    """The results of calls of a function, and what its recording is after them."""
    made = []
    flat = flat_codegen.flat
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(flat_codegen, "flat", lambda *args, **more: made.append(flat(*args, **more)) or made[-1])
        run, _ = compiled(function, ALL)
        for number in range(calls):
            moving = [each(number) if callable(each) else each for each in given]
            assert torch.equal(run(*moving), function(*moving))
    return getattr(made[0].flat.known, "recorded", None)


def recorded_product(x):
    """A function that was recorded."""
    w = torch.ones_like(x)
    run = GraphReplay(lambda given: (torch.tanh(given[0] @ given[1]) @ given[1],), [x, w])
    with torch.no_grad():
        for _ in range(8):
            run([x, w])
            torch.cuda.current_stream().synchronize()  # whoever else is at work: its marks are passed
    assert run.recorded is not None
    gc.collect()
    return run


def test_a_recording_that_is_dropped_gives_its_memory_back():
    run = recorded_product(torch.randn(512, 512, device="cuda"))
    held = len(pools())
    run.drop("it is tried")
    assert len(pools()) < held and run.recorded is None


def test_a_recording_that_nobody_holds_gives_its_memory_back():
    run = recorded_product(torch.randn(512, 512, device="cuda"))
    held = len(pools())
    del run
    gc.collect()
    assert len(pools()) < held


def test_what_another_thread_captures_stays_whole_beside_a_recording_that_is_dropped():
    one = torch.randn(512, 512, device="cuda")  # nobody draws numbers beside a capture
    run, x, graph = recorded_product(one), torch.ones(64, device="cuda"), torch.cuda.CUDAGraph()
    ready, go_on, found = Event(), Event(), []

    def capture():
        with torch.cuda.graph(graph):
            made = x * 2
            ready.set()
            go_on.wait(30)
            found.append(made + 1)

    thread = Thread(target=capture)
    thread.start()
    assert ready.wait(30)
    try:
        run.drop("it is tried")
    finally:
        go_on.set()
        thread.join()
    graph.replay()
    assert found[0].tolist() == [3.0] * 64
    recorded_product(one).drop("and what was not given back is, with this")


def pools():
    """Memory that is held for recordings."""
    return [each for each in torch.cuda.memory_snapshot() if tuple(each["segment_pool_id"]) != (0, 0)]


def test_a_first_result_does_not_wait_for_kernels():
    torch._dynamo.reset()
    module, x = Block(64).cuda(), torch.randn(3, 17, 64, device="cuda", requires_grad=True)
    made, prompt = [], torch_backend.compile_lazily
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_backend, "compile_lazily", lambda *given: made.append(prompt(*given)) or made[-1])
        run = torch.compile(module, backend=backend, options={"keep": "all"})
        for call in range(4):
            module.zero_grad()
            sum(each.square().mean() for each in run(x)).backward()
            got = [each.grad.clone() for each in module.parameters()]
            module.zero_grad()
            sum(each.square().mean() for each in module(x)).backward()
            assert max(off(one, each.grad) for one, each in zip(got, module.parameters(), strict=True)) < 2e-5
            assert [each.prompt.known is not None for each in made] == [call > 0] * 2
    assert all(".data_ptr(), " in each.prompt.known.flat.text for each in made)


def test_memory_that_runs_out_is_told():
    run, _ = compiled(lambda x: torch.softmax(x, -1).unsqueeze(0) + torch.zeros(1 << 12, 1, 1, device="cuda"))
    with (
        torch.no_grad(),
        pytest.raises(torch.OutOfMemoryError, match=r" needs .* memory .*; free tensors, or give") as caught,
    ):
        run(torch.randn(1 << 12, 1 << 14, device="cuda"))
    assert str(caught.value).count("free tensors") == 1


def test_devices_that_do_not_go_together():
    made = noyau.optimize(torch.nn.Linear(8, 8).cuda(), torch.randn(4, 8, device="cuda"), certificate="smoke")
    with pytest.raises(InputError, match="the module is on cuda:0, and its inputs are on cpu; move them to one device"):
        made(torch.randn(4, 8))


def test_a_number_on_the_host_that_changes_is_read_in_each_call():
    x, t = torch.randn(64, 64, device="cuda"), torch.tensor(0.0)
    assert recordings_of(lambda x, t: (x @ x) * t, x, lambda number: t.fill_(number)) is None


def test_tokens_with_gaps_between_them_are_copied_as_they_lie():
    w, ids = torch.randn(64, 64, device="cuda"), torch.randint(0, 64, (3, 32), device="cuda")

    def function(ids, w):
        return torch.nn.functional.embedding(ids, w) @ w

    assert recordings_of(function, lambda number: ids[:, number : number + 1].transpose(0, 1), w) is not None


def test_views_that_negate_are_read_as_what_they_are():
    def function(x, y):
        return torch.softmax(torch.fft.rfft(x).conj().imag * 3 + y, -1)

    run, record = compiled(function)
    for _ in range(4):
        x = torch.randn(64, 30, device="cuda")
        y = torch._neg_view(torch.randn(64, 16, device="cuda"))
        with torch.no_grad():
            assert off(run(x, y), function(x, y)) < 1e-5
    assert all(graph.kept for graph in record.graphs)


def test_gradients_that_are_not_in_memory_as_they_are():
    def function(x):
        return torch.softmax(x * 3, -1) * 2

    run, record = compiled(function)
    x, ones = torch.randn(64, 30, device="cuda", requires_grad=True), torch.ones(64, 30, device="cuda")
    weight = torch.randn(64, 30, device="cuda")
    for each in (ones, weight, torch._neg_view(weight), weight):
        (got,) = torch.autograd.grad(run(x), x, each)
        (want,) = torch.autograd.grad(function(x), x, each)
        assert (got - want).norm() < 1e-5 * weight.norm()
    nothing = torch._efficientzerotensor((64, 30), device="cuda")
    assert not torch.autograd.grad(run(x), x, nothing)[0].any()
    assert [len(graph.kept) for graph in record.graphs] == [1, 1]


def test_conjugates_are_read_as_what_they_are():
    """In the gradient of a product of complex numbers, which a recording replays."""

    def function(x, weight):
        return torch.fft.irfft(torch.fft.rfft(x) * weight * weight.conj().sin()).tanh() * 3

    run, _ = compiled(function)
    weight = torch.randn(16, dtype=torch.complex64, device="cuda", requires_grad=True)
    for _ in range(8):
        x = torch.randn(64, 30, device="cuda", requires_grad=True)
        found = torch.autograd.grad(run(x, weight).square().sum(), (x, weight))
        for got, want in zip(found, torch.autograd.grad(function(x, weight).square().sum(), (x, weight)), strict=True):
            assert (got - want).norm() < 1e-4 * want.norm()


def test_a_loss_of_probabilities_is_trained_on():
    """torch's kernel asserts that they are from 0 to 1, and is not run on made-up inputs."""

    def function(x, y):
        return torch.nn.functional.binary_cross_entropy((x * 3).sigmoid(), y.sigmoid(), reduction="sum") * 2

    run, _ = compiled(function)
    x, y = torch.randn(64, 30, device="cuda", requires_grad=True), torch.randn(64, 30, device="cuda")
    for _ in range(4):
        (got,), (want,) = (torch.autograd.grad(each(x, y), x) for each in (run, function))
        assert (got - want).norm() < 1e-4 * want.norm()


def test_a_checkpoint_draws_the_same_numbers_again():
    """Attention and dropout read the state of a generator, which torch gives to the graphs. The result is linear in one
    argument, so that its gradient tells whether they are the numbers of forward."""

    def block(x, value):
        mixed = torch.nn.functional.scaled_dot_product_attention(x.sin(), x.cos(), value * 3, dropout_p=0.3)
        return torch.nn.functional.dropout(mixed * x.tanh(), 0.3)

    def function(x, value):
        return torch.utils.checkpoint.checkpoint(block, x, value, use_reentrant=False) * x.exp()

    run, record = compiled(function)
    seen = []
    for _ in range(8):
        x, value = (torch.randn(2, 4, 64, 32, device="cuda", requires_grad=True) for _ in range(2))
        result = run(x, value)
        assert (
            off((torch.autograd.grad(result.square().sum(), value)[0] * value).sum(), 2 * result.square().sum()) < 1e-4
        )
        seen.append(result == 0)
    assert not torch.equal(seen[0], seen[1]) and not torch.equal(seen[-2], seen[-1])
    assert not any(graph.whole for graph in record.graphs)
