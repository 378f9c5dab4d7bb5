from __future__ import annotations

import copy
import json
import logging
import pickle
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

import noyau
from noyau.errors import DeviceError, InputError, UnsupportedError
from noyau.jobs.optimize.torch import run
from noyau.jobs.optimize.torch.graph_hosts import GraphRecord
from noyau.jobs.optimize.torch.run import explain_devices, explain_inputs
from noyau.timing.verdict import Comparison
from tests.jobs.optimize.torch.modules import Block, F, same


@pytest.fixture(scope="module")
def optimized():
    torch.manual_seed(0)
    torch._dynamo.reset()
    return noyau.optimize(Block(), torch.randn(2, 5, 32), dynamic=True, keep="all", budget_s=0.05)


def test_it_is_called_as_the_module(optimized):
    x = torch.randn(4, 9, 32)
    with torch.no_grad():
        assert same(optimized.compiled(x), optimized.module(x))
        assert same(optimized(x), optimized.module(x))
    assert optimized.whole is not None


def test_what_is_slower_as_a_whole_runs_as_it_was(optimized):
    slower = replace(optimized, whole=Comparison((1.0,) * 20, (2.0,) * 20))
    assert slower.wins  # for all kernels were asked for
    slower = replace(slower, wishes=replace(slower.wishes, keep="faster"))
    assert not slower.wins
    called = []
    replace(slower, module=called.append)(3)
    assert called == [3]
    assert not slower.report.kept
    assert slower.report.nodes_after == slower.report.nodes_before
    reasons = {one.reason for one in slower.candidates if one.certificate and one.certificate.ok}
    assert "as a whole the module is SLOWER with its kernels: 0.50x" in reasons


def test_in_doubt_the_module_itself_runs(optimized):
    faster = replace(optimized, wishes=replace(optimized.wishes, keep="faster"))
    assert not replace(faster, whole=Comparison((1.0,), (1.1,))).wins  # AMBIGUOUS: of one pair
    assert replace(faster, whole=Comparison((1.1,), (1.0,))).wins


def test_without_a_kernel_the_module_itself_runs_where_no_gradient_is_wanted(optimized):
    called = []
    record = GraphRecord([replace(optimized.record.graphs[0], candidates=())])
    plain = replace(optimized, module=called.append, compiled=lambda x: None, record=record, whole=None)
    with torch.no_grad():
        plain(3)
    plain(4)
    assert called == [3]


def test_of_a_module_that_is_slower_half_of_the_kernels_are_left_out_before_all(optimized, monkeypatch):
    """The half that gains least, until it is not slower, or one kernel is left."""
    seen = []

    def timed(slower, module, arguments, wishes, dynamic, record):
        dropped = record.dropped
        seen.append(dict(dropped))
        first = optimized.record.graphs[0]
        some = tuple(replace(one, kept=one.kept and one.planned.operator not in dropped) for one in first.candidates)
        seconds = 2.0 if len(seen) <= slower else 0.5
        record.tell(replace(first, candidates=some))
        return module, Comparison((1.0,) * 20, (seconds,) * 20)

    kept = [one.planned.operator for one in optimized.record.graphs[0].kept]
    for slower, runs in ((0, 1), (1, 2), (9, 3 if len(kept) > 2 else 2)):
        seen.clear()
        monkeypatch.setattr(run, "_time", partial(timed, slower))
        found = noyau.optimize(optimized.module, optimized.inputs)
        assert found.wins == (slower < runs)
        assert len(seen) == runs
        assert [len(each) for each in seen[:2]] == [0, (len(kept) + 1) // 2][:runs]
        assert set(seen[-1].values()) <= {"as a whole the module is SLOWER with its kernels: 0.50x"}


def test_its_report_is_as_for_onnx_models(optimized):
    report = optimized.report
    assert report.model == "Block"
    assert report.kept and report.nodes_after < report.nodes_before
    assert report.machine.versions["torch"] == torch.__version__
    assert all(one.error is not None for one in report.kept)
    assert any("mm" in name for left in report.not_fused for name in left.nodes)
    told = json.loads(json.dumps(report.to_json()))
    assert told["schema_version"] == report.schema_version
    assert "kernels" in str(report)
    (graph,) = told["graphs"]
    assert graph["kind"] == "inference" and graph["whole"].startswith("as a whole the module is ")
    assert graph["wall"]["next"] in str(report).replace("\n", " ").replace("  ", " ") or graph["wall"]["products"] > 0
    assert repr(optimized) == f"<Block with {len(report.kept)} of {len(report.kernels)} kernels; .report tells of them>"


def test_its_sources_carry_their_certificates(optimized):
    name = optimized.report.kept[0].name
    assert "certificate: right on" in optimized.source(name)
    with pytest.raises(InputError, match="no kernel nonsense"):
        optimized.source("nonsense")


def test_gradients_go_through_it(optimized):
    x = torch.randn(2, 5, 32, requires_grad=True)
    optimized.compiled(x)[0].sum().backward()
    got = x.grad.clone()
    x.grad = None
    optimized.module(x)[0].sum().backward()
    assert torch.allclose(got, x.grad, atol=1e-4)
    assert {graph.kind for graph in optimized.record.graphs} == {"inference", "forward", "backward"}


def test_what_else_the_module_has_it_has(optimized):
    module = optimized.module
    assert optimized.state_dict().keys() == module.state_dict().keys()
    assert all(map(torch.equal, optimized.parameters(), module.parameters()))
    assert optimized.norm is module.norm
    assert optimized.eval() is optimized and not module.training and not optimized.training
    assert optimized.train() is optimized and module.training
    assert optimized.eval.__doc__ == module.eval.__doc__
    with pytest.raises(AttributeError, match="'Block' object has no attribute 'widht'"):
        _ = optimized.widht


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_has_parameters_and_kernels_of_its_own(optimized, copied):
    x = torch.randn(3, 4, 32)
    other = copied(optimized)
    for own, before in zip(other.parameters(), optimized.parameters(), strict=True):
        assert torch.equal(own, before)
        own.data.add_(1)
        assert not torch.equal(own, before)
    assert (other.whole, other.dynamic, other.notes) == (optimized.whole, True, optimized.notes)
    assert not other.record.graphs
    with torch.no_grad():
        assert same(other(x), other.module(x))
        assert not torch.equal(other(x)[0], optimized(x)[0])


def test_a_copy_makes_its_kernels_but_those_that_the_whole_had_lost(optimized):
    lost, *others = (each.planned.operator for each in optimized.record.graphs[0].kept)
    other = copy.copy(replace(optimized, record=replace(optimized.record, dropped={lost: "it gained least"})))
    torch._dynamo.reset()
    with torch.no_grad():
        other(optimized.inputs[0])
    assert {each.name for each in other.report.kept} == {*others}


def test_weights_in_few_bits_are_not_copied(optimized):
    few = replace(optimized, record=replace(optimized.record, weights={0: SimpleNamespace(weights=("up",))}))
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(UnsupportedError, match="weights in few bits are not copied"):
            copied(few)


class Statistics(torch.nn.Module):
    """A norm that counts its batches, random numbers, and an input that each call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        count.add_(1)
        return F.dropout(F.gelu(self.norm(x)) * 2 + count, 0.5)


@pytest.mark.parametrize("job", [partial(noyau.optimize, budget_s=0.05), noyau.explain, noyau.profile])
@pytest.mark.parametrize("is_inference", [False, True])
def test_timed_calls_leave_buffers_inputs_and_random_numbers_as_they_were(job, is_inference):
    torch._dynamo.reset()
    with torch.inference_mode(is_inference):
        module, inputs = Statistics().train(), (torch.randn(8, 4), torch.zeros(()))
        before, random = copy.deepcopy(module.state_dict()), torch.get_rng_state()
        job(module, inputs)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert inputs[1] == 0
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"x": 1}, "inputs are a tensor or a tuple of the module's arguments, not a dict"),
        ((torch.ones(2), torch.ones(2, device="meta")), "the inputs are on cpu and meta; move them to one device"),
        (torch.ones(2, device="meta"), "on the device meta and have no values"),
    ],
)
def test_inputs_that_are_none(inputs, told):
    with pytest.raises(InputError, match=told):
        noyau.optimize(torch.nn.Identity(), inputs)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_what_is_not_dense_stays_with_torch():
    torch._dynamo.reset()
    quantised = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    for x, what in ((torch.eye(3).to_sparse(), "sparse_coo"), (quantised, "quantised")):
        read = torch.Tensor.dequantize if x.is_quantized else torch.Tensor.to_dense
        optimized = noyau.optimize(lambda x, read=read: read(x) * 2, x, budget_s=0)
        assert torch.equal(optimized(x), read(x) * 2)
        assert optimized.report.inputs == (f"argument 0: {what}, not dense: what reads it stays with torch",)


def test_devices_that_do_not_go_together():
    torch._dynamo.reset()
    with pytest.raises(InputError, match="the module is on meta, and its inputs are on cpu; move them to one device"):
        noyau.optimize(torch.nn.LayerNorm(4, device="meta"), torch.ones(2, 4))


@pytest.mark.parametrize(
    "error",
    [
        DeviceError("a kernel on the device cuda:0 trapped"),
        torch.OutOfMemoryError("the device has no memory"),
        RuntimeError("CUDA error: no kernel image is available for execution on the device"),
    ],
)
def test_other_errors_that_name_a_device_stay_as_they_are(error):
    for explain in (explain_devices, explain_inputs):
        with pytest.raises(type(error)) as caught, explain(torch.nn.LayerNorm(4), (torch.ones(4),)):
            raise error
        assert caught.value is error


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ((torch.ones(3, 5),), r"Linear does not run on its inputs \(float32\[3, 5\]\): mat1 and mat2 shapes cannot"),
        ((), r"Linear does not run on its inputs \(none\): .*missing 1 required positional argument"),
        ((torch.ones(3, 8).double(),), r"\(float64\[3, 8\]\): mat1 and mat2 must have the same dtype"),
        (("x",), r"\(str\): linear\(\): argument 'input' \(position 1\) must be Tensor, not str$"),
    ],
)
def test_inputs_that_the_module_does_not_take(inputs, told):
    torch._dynamo.reset()
    records, handler, log = [], logging.Handler(), logging.getLogger("torch._subclasses.fake_tensor")
    handler.emit = records.append
    log.addHandler(handler)
    with pytest.raises(InputError, match=told) as caught:
        noyau.optimize(torch.nn.Linear(8, 4), inputs, budget_s=0)
    log.removeHandler(handler)
    assert "\n" not in str(caught.value) and not records and not log.disabled


def test_calls_of_an_optimized_module_raise_what_torch_raises():
    optimized = noyau.optimize(torch.nn.Linear(8, 4), torch.ones(3, 8), budget_s=0)
    with pytest.raises(RuntimeError, match=r"reduction dim|shapes cannot"):
        optimized(torch.ones(3, 5))


class _OwnError(RuntimeError):
    """An error of the module's own."""


def _refuse(x):
    raise _OwnError("rows differ")


def test_an_error_of_the_module_is_not_caught():
    torch._dynamo.reset()
    with pytest.raises(_OwnError, match="rows differ"):
        noyau.optimize(_refuse, torch.ones(2), budget_s=0)


def test_a_function_is_not_saved(tmp_path):
    optimized = noyau.optimize(torch.neg, torch.ones(2))
    with pytest.raises(UnsupportedError, match=r"make it the forward of a torch\.nn\.Module"):
        optimized.save(tmp_path / "x.noyau")
