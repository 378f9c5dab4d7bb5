"""Streams and events without a GPU: what is ordered, what is not, and scripts of torch and Numba-CUDA that show it."""

from __future__ import annotations

import pytest

from noyau.jobs.check.script_run import check_script
from noyau.sanitizer.scripts.record import ScriptSession
from noyau.sanitizer.scripts.streams import DEFAULT, HOST, FakeEvent, FakeStream, StreamOrder, StreamWork, order_of


@pytest.fixture
def order():
    made = StreamOrder(ScriptSession("script.py"))
    FakeStream.order = made
    return made


def touches(order, stream, line, *, writes, span=(0, 8)):
    if stream != HOST:
        order.begin(stream)
    order.touch(StreamWork(stream, "a kernel", f"script.py:{line}", "triton"), "x", span, "x", writes=writes)


def messages(order):
    return [each.message for each in order.session.advice.values()]


def test_two_streams_without_an_event_race(order):
    one, two = order.open(blocks=False), order.open(blocks=False)
    touches(order, one, 3, writes=True)
    touches(order, two, 4, writes=False)
    (found,) = order.session.advice.values()
    assert (
        found.message
        == "a kernel in stream 2 reads x, written by a kernel in stream 1 on line 3, and no event orders them"
    )
    assert (found.kind, found.place, found.severity) == ("race", "script.py:4", "error")
    assert found.mend.startswith("let the later stream wait: ")


def test_reads_and_other_bytes_do_not_race(order):
    one, two = order.open(blocks=False), order.open(blocks=False)
    touches(order, one, 3, writes=False)
    touches(order, two, 4, writes=False)
    touches(order, one, 5, writes=True, span=(8, 16))
    touches(order, two, 6, writes=True, span=(16, 24))
    assert not messages(order)


@pytest.mark.parametrize("how", ["event", "stream", "host", "device", "query"])
def test_whatever_waits_orders(order, how):
    one, two = FakeStream(), FakeStream()
    touches(order, one.number, 3, writes=True)
    event = one.record_event()
    match how:
        case "event":
            two.wait_event(event)
        case "stream":
            two.wait_stream(one)
        case "host":
            one.synchronize()
        case "device":
            order.synchronize()
        case _:
            assert event.query()
    touches(order, two.number, 4, writes=True)
    touches(order, one.number, 5, writes=True)
    assert len(messages(order)) == 1  # the first stream has not waited for the second
    assert "stream 1 writes x, written by a kernel in stream 2" in messages(order)[0]


def test_an_event_is_of_the_moment_that_it_is_recorded_at(order):
    one, two = FakeStream(), FakeStream()
    event = FakeEvent()
    event.record(one)
    touches(order, one.number, 3, writes=True)
    event.wait(two)
    touches(order, two.number, 4, writes=False)
    assert len(messages(order)) == 1


def test_the_default_stream_waits_for_those_that_block_alone(order):
    blocks, free = order.open(blocks=True), order.open(blocks=False)
    touches(order, blocks, 3, writes=True)
    touches(order, DEFAULT, 4, writes=True)
    assert not messages(order)
    touches(order, free, 5, writes=True)
    assert len(messages(order)) == 1


def test_the_host_waits(order):
    one = FakeStream()
    touches(order, one.number, 3, writes=True)
    touches(order, HOST, 4, writes=False)
    assert messages(order) == ["the host reads x, written by a kernel in stream 1 on line 3, and no event orders them"]
    one.synchronize()
    touches(order, HOST, 5, writes=True)
    assert len(messages(order)) == 1


def test_times_and_one_order_a_session(order):
    start, stop = FakeEvent(), FakeEvent(timing=True)
    start.record()
    stop.record()
    assert start.elapsed_time(stop) >= 0
    session = ScriptSession("other.py")
    assert order_of(session) is order_of(session) is not order


TORCH = """
import torch
x = torch.randn(64, device="cuda")
side = torch.cuda.Stream()
WAIT
with torch.cuda.stream(side):
    y = x * 2
    y += 1
host = torch.empty(64, pin_memory=True)
with torch.cuda.stream(side):
    host.copy_(y, non_blocking=True)
SYNC
print(host.sum())
"""
NUMBA = """
import numpy as np
from numba import cuda

@cuda.jit
def twice(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = 2 * x[i]

first, second, there = cuda.stream(), cuda.stream(), cuda.event()
x = cuda.to_device(np.ones(64, np.float32), stream=first)
there.record(first)
WAIT
out = cuda.device_array(64, np.float32)
twice[2, 32, second](x, out)
print(out.copy_to_host()[3])
"""


def races(tmp_path, text, wait, sync=""):
    path = tmp_path / "script.py"
    path.write_text(text.replace("WAIT", wait).replace("SYNC", sync))
    found = check_script(path)
    assert not found.fault
    return [(int(each.place.rpartition(":")[2]), each.message.partition(", ")[0]) for each in found.advice]


@pytest.mark.long
def test_a_script_of_torch(tmp_path):
    assert races(tmp_path, TORCH, "", "") == [
        (7, "torch's mul in stream 1 reads a tensor of float32[64]"),
        (13, "the host reads a tensor of float32[64]"),
    ]
    assert not races(tmp_path, TORCH, "side.wait_stream(torch.cuda.current_stream())", "side.synchronize()")


MADE_ALIKE = """
import torch, triton
x = torch.randn(64, device="cuda")
torch.cuda.set_stream(torch.cuda.Stream()), torch.cuda.set_stream(None)  # which changes nothing
y = torch.empty_like(x)
z = x.new_zeros(3)
y = x + 1
"""


def test_a_tensor_that_is_made_like_another_one_reads_none_of_its_cells(tmp_path):
    assert races(tmp_path, MADE_ALIKE, "") == [(7, "torch's add in stream 1 reads a tensor of float32[64]")]


@pytest.mark.long
def test_a_script_for_numba_cuda(tmp_path):
    assert races(tmp_path, NUMBA, "") == [(16, "the kernel twice in stream 2 reads an array of float32[64]")]
    assert not races(tmp_path, NUMBA, "there.wait(second)")
