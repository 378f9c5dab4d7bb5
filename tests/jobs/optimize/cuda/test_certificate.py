"""What a kernel on a device is tried with: sizes that torch did not see too. No GPU is needed."""

from __future__ import annotations

import re
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sympy
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from noyau.errors import InputError
from noyau.frontends.torch.tensors import FROM_TORCH
from noyau.hosts.torch.cuda import guarded_memory
from noyau.hosts.torch.modules import device_inputs
from noyau.hosts.torch.modules import groups as modules_groups
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.hosts.torch.modules.device_inputs import Drawer, sizes_of
from noyau.jobs.optimize.cuda.certificate import POISONS, DeviceTrial, _unwritten
from noyau.toolchain.guard_zones import poison_of
from noyau.verify.adversarial import SMOKE


def trial_of(function, *args):
    """A group of a function whose sizes are names, before it has a kernel."""
    found = modules_sites.trace_graph(make_fx(function, tracing_mode="symbolic")(*args).graph)
    (group,) = modules_groups.cut(found).groups
    kernel: Any = None
    return DeviceTrial(kernel, group, found)


def test_sizes_that_are_names_are_tried_at_half_and_at_primes():
    trial = trial_of(lambda x, y: torch.softmax(x * 2.5, -1) + y, torch.randn(16, 30), torch.randn(30))
    tried = [given for _, given in trial.elsewhere(modules_sites.CPU)]
    shapes = [[list(each.shape) for each in given.values() if isinstance(each, torch.Tensor)] for given in tried]
    assert all([9, 16] in each for each in shapes[:1])
    assert all([17, 31] in each for each in shapes[1:])
    assert len(shapes) == 2
    for given in tried:
        assert [each.shape for each in trial.truth(given)] == [each.shape for each in trial.run_unfused(given)]


def test_sizes_that_torchs_own_nodes_do_not_take_are_left_out():
    trial = trial_of(lambda x: x.exp().reshape(4, 4) * 2.5, torch.randn(16))
    assert not list(trial.elsewhere(modules_sites.CPU))


def test_a_size_with_a_name_that_stands_in_no_size_alone_is_refused():
    shape = SimpleNamespace(node=SimpleNamespace(expr=sympy.Symbol("s0") * sympy.Symbol("s1")))
    (s0, s1) = shape.node.expr.free_symbols
    assert device_inputs._size_at({s0: 3, s1: 5}, shape) == 15
    with pytest.raises(InputError, match="stand in no size alone"):
        device_inputs._size_at({s0: 3}, shape)


def test_memory_that_runs_out_is_no_size_that_is_left_out(monkeypatch):
    def short(*_):
        raise torch.OutOfMemoryError("out of memory")

    trial = trial_of(lambda x: torch.softmax(x * 2.5, -1), torch.randn(16, 30))
    monkeypatch.setattr(DeviceTrial, "run_unfused", short)
    with pytest.raises(torch.OutOfMemoryError):
        list(trial.elsewhere(modules_sites.CPU))


def test_sizes_that_are_numbers_are_those_that_torch_saw():
    found = modules_sites.trace_graph(make_fx(lambda x: (x * 2.5).exp(), tracing_mode="fake")(torch.randn(4, 3)).graph)
    (group,) = modules_groups.cut(found).groups
    kernel: Any = None
    assert not sizes_of(group, found)
    assert not list(DeviceTrial(kernel, group, found).elsewhere(modules_sites.CPU))


def right(x, out):
    out.copy_(torch.softmax(x * 2.5, -1))


def wrong(x, out):
    right(x, out)
    out[3, 7] += 0.01


def unwritten(x, out):
    out[:, :-1] = torch.softmax(x * 2.5, -1)[:, :-1]


def beyond(x, out):
    right(x, out)
    out.as_strided((1,), (1,), out.storage_offset() + out.numel())[0] = 0


def ahead(x, out):
    right(x, out)
    out.as_strided((1,), (1,), out.storage_offset() - 1)[0] = 0


def changing(x, out):
    right(x, out)
    x[0, 0] = 1


def restless(x, out):
    right(x, out)
    out[0, 0] *= 1 + next(NUDGES)


NUDGES = iter([2**-24, 2**-22] * 10)
KERNELS = {
    right: "",
    wrong: r"wrong at _softmax\[3, 7\]",
    unwritten: "left cells of its output 0 as they were",
    beyond: "wrote behind an output",
    ahead: "wrote before an output",
    changing: "changed its input 0",
}


def softmax(x):
    return torch.softmax(x * 2.5, -1)


def certificate_of(kernel, monkeypatch, function=softmax, dtype=torch.float32):
    """Of a kernel that is a function of its input and its output."""
    found = modules_sites.trace_graph(make_fx(function, tracing_mode="fake")(torch.randn(8, 30).to(dtype)).graph)
    (group,) = modules_groups.cut(found).groups

    def run(self, own, room):
        made = room.empty((8, 30), dtype=dtype, device=modules_sites.CPU)
        kernel(*own, made)
        return (made,)

    monkeypatch.setattr(DeviceTrial, "run", run)
    call: Any = SimpleNamespace(name="softmax")
    drawer = Drawer(group, found, modules_sites.CPU)
    with np.errstate(all="ignore"):
        return DeviceTrial(call, group, found).certificate(drawer, SMOKE)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_is_refused_for_what_it_does(kernel, monkeypatch):
    made, told = certificate_of(kernel, monkeypatch), KERNELS[kernel]
    assert made.ok == (not told)
    assert made.order_independent
    if told:
        assert re.search(told, made.summary())


def gelu(x):
    x = x * 8
    return 0.5 * x * (1 + torch.tanh(0.796875 * (x + 0.0444336 * x**3)))


def real_gelu(x, out):
    """The real value also where 1 + tanh(-30) is 0 in float64."""
    x = x.double() * 8
    out.copy_(x * torch.sigmoid(2 * 0.796875 * (x + 0.0444336 * x**3)))


def faulty_gelu(x, out):
    real_gelu(x, out)
    out -= 1e-3


def real_softplus(x, out):
    out.copy_(torch.nn.functional.softplus(x.double() * 16, threshold=99))


def real_expm1(x, out):
    out.copy_(torch.expm1(x.double() * 1e-20))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_real_value_is_right_where_float64_cancels(dtype, monkeypatch):
    assert certificate_of(real_gelu, monkeypatch, gelu, dtype).ok
    assert certificate_of(real_softplus, monkeypatch, lambda x: torch.log(1 + torch.exp(x * 16)), dtype).ok
    assert certificate_of(real_expm1, monkeypatch, lambda x: torch.exp(x * 1e-20) - 1, dtype).ok
    assert certificate_of(faulty_gelu, monkeypatch, gelu, dtype).outcomes[0].beyond > 40


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64])
def test_a_cell_of_any_dtype_that_nobody_writes_is_found(dtype):
    """Also where what lies there is right: a bool is half of the time."""
    made = [guarded_memory.Room(which).empty((3,), dtype=dtype, device=modules_sites.CPU) for which in POISONS]
    for each in made:
        each[:2] = 1
    (fault,) = guarded_memory.answers(list(_unwritten(made[:1], made[1:])))
    assert (fault.kind, fault.note) == ("unwritten", "left cells of its output 0 as they were")
    for each in made:
        each[2] = 0
    assert not guarded_memory.answers(list(_unwritten(made[:1], made[1:])))


def test_other_bits_in_another_run_are_told(monkeypatch):
    made = certificate_of(restless, monkeypatch)
    assert not made.order_independent
    assert not any(outcome.failures for outcome in made.outcomes)


def test_results_of_runs_are_picked_from_one_by_one(monkeypatch):
    alive, most, unfused = weakref.WeakSet(), [], DeviceTrial.run_unfused
    written, kept, empty = weakref.WeakSet(), [], guarded_memory.Room.empty

    def written_to(*args, **kwargs):
        made = empty(*args, **kwargs)
        written.add(made)
        return made

    def counted(self, given):
        made = unfused(self, given)
        alive.update(made)
        most.append(len(alive))
        kept.append(len(written))
        return made

    monkeypatch.setattr(guarded_memory.Room, "empty", written_to)
    monkeypatch.setattr(DeviceTrial, "run_unfused", counted)
    assert certificate_of(wrong, monkeypatch).outcomes[0].beyond
    assert len(most) > 16  # a cell that is wrong asks for more of them
    assert max(most) == max(kept) == 1


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool]
)
def test_poison_is_seen_in_each_dtype(dtype):
    for poison in range(3):
        room = guarded_memory.Room(poison)
        made = room.empty((3, 5), dtype=dtype, device=modules_sites.CPU)
        want = poison_of(FROM_TORCH[dtype], poison)
        (cells,) = guarded_memory.to_host([made])
        assert cells.tobytes() == want * 15
        assert guarded_memory.holds_poison(made, poison).all()
        assert not guarded_memory.holds_poison(made, (poison + 1) % 3).any()
        assert not guarded_memory.answers(list(room.flags()))
        guarded_memory.bits_of(room.rooms[0])[63] ^= 1
        (fault,) = guarded_memory.answers(list(room.flags()))
        assert (fault.kind, fault.note) == ("out-of-bounds", "wrote before an output")
