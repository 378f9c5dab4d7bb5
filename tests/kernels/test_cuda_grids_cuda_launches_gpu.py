"""Kernels of one's own in CUDA C++ and for Numba-CUDA on a GPU: on tensors and arrays of others, on the current stream,
in autograd, compiled graphs and CUDA graphs, checked, and refused with a reason."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import noyau
from noyau.errors import BuildError, DeviceError, UnsupportedError
from noyau.kernels.call import CALLERS
from noyau.signatures.instances import bind
from tests.kernels import cuda_ops

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


def on_tensors(op, name, *arguments, **constants):
    arrays = [np.zeros(a.shape, str(a.dtype)[6:]) if isinstance(a, torch.Tensor) else a for a in arguments]
    bound = bind(op.signature, arrays, op.known_sizes({}), op.name)
    kernel = op.kernels[name]
    return CALLERS[kernel.language].on_tensors(kernel, bound.instance, constants)(*arguments)[0]


@pytest.mark.parametrize("name", ["text", "jit"])
@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 1_000_003])
def test_the_results_are_right_at_each_size(name, n):
    x = torch.randn(n, device="cuda")
    assert torch.equal(on_tensors(cuda_ops.scaled, name, x, 3.0), 3 * x)


def test_constants_outputs_that_hold_something_and_strides():
    x = torch.randn(70, 300, device="cuda").t()
    torch.testing.assert_close(on_tensors(cuda_ops.row_sums, "text", x), x.sum(1), rtol=1e-5, atol=1e-4)
    key, y = torch.randint(0, 8, (5000,), device="cuda"), torch.ones(5000, device="cuda")
    assert torch.equal(on_tensors(cuda_ops.binned, "text", key, y), torch.bincount(key, minlength=8).float())
    assert torch.equal(on_tensors(cuda_ops.scaled, "jit", y[::3], 2.0), 2 * y[::3])


@pytest.fixture(scope="module")
def checked():
    for op in (cuda_ops.scaled, cuda_ops.row_sums):
        report = noyau.check(op, seed=1)
        assert report.ok, str(report)
    return report


def chosen(op, name):
    """The op with one kernel, which runs before what is generated."""
    from dataclasses import replace

    kernel = op.kernels[name]
    return noyau.Op(replace(op.description, kernels=(replace(kernel, usage=replace(kernel.usage, trust=True)),)))


def test_a_check_runs_them_here(checked):
    assert all("on NVIDIA" in note for each in checked.kernels if each.name == "text" for note in each.notes[:1])


@pytest.mark.parametrize("name", ["text", "jit"])
def test_on_a_stream_in_autograd_compiled_and_captured(name):
    op, x = chosen(cuda_ops.scaled, name), torch.randn(4096, device="cuda", requires_grad=True)
    assert op.explain(x.detach(), 2.0).kernel == name
    op(x, 2.0).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2))
    plain, side = x.detach(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
        late = plain + 1
        result = op(late, 2.0)
    again = op(late, 2.0, stream=side)
    torch.cuda.synchronize()
    assert torch.equal(result, 2 * (plain + 1))
    assert torch.equal(again, result)
    compiled = torch.compile(lambda t: op(t, 2.0) + 1, fullgraph=True)
    assert torch.equal(compiled(plain), 2 * plain + 1)
    graph, into = torch.cuda.CUDAGraph(), plain.clone()
    with torch.cuda.graph(graph):
        captured = op(into, 2.0)
    into.fill_(5)
    graph.replay()
    assert torch.equal(captured, torch.full_like(captured, 10))


@pytest.mark.parametrize("package", ["cupy", "numba"])
@pytest.mark.parametrize("name", ["text", "jit"])
def test_arrays_of_others_give_arrays_of_theirs(package, name):
    x = np.arange(1000, dtype=np.float32)
    if package == "cupy":
        cupy = pytest.importorskip("cupy", reason="cupy needs a GPU, which these tests are for")
        there = cupy.asarray(x)
        result = chosen(cuda_ops.scaled, name)(there, 2.0).get()
    else:
        from numba import cuda

        there = cuda.to_device(x)
        result = chosen(cuda_ops.scaled, name)(there, 2.0).copy_to_host()
    assert np.array_equal(result, 2 * x)


def made(launch, **options):
    op = noyau.op("f32[n], f32 -> f32[n]")(cuda_ops.scaled.reference)
    op.kernel(cuda_ops.SCALED, language="cuda", name="k", launch=launch, trust=True, options=options)
    return op


@pytest.mark.parametrize(
    ("launch", "options", "error"),
    [
        ((1, 2048), {}, "a launch asks for a block of 2048 along x, and cuda:0 takes 1024"),
        ((1, (64, 32)), {}, "2048 threads a block, and cuda:0 takes 1024"),
        (((1, 70000), 32), {}, "a grid of 70000 along y, and cuda:0 takes 65535"),
        ((1, 32), {"shared_bytes": 1 << 20}, "1048576 bytes of shared memory a block, and cuda:0 takes 232448"),
        ((16, 32), {"cluster": 16}, "16 blocks a cluster, and cuda:0 takes 8"),
    ],
)
def test_a_launch_beyond_a_limit_names_it_and_the_value(launch, options, error):
    with pytest.raises(DeviceError, match=error):
        made(launch, **options)(torch.ones(8, device="cuda"), 2.0)


def test_shared_memory_beyond_48_kib_and_clusters_are_there_where_asked_for():
    x = torch.ones(1000, device="cuda")
    assert torch.equal(made((4, 256), shared_bytes=100 << 10)(x, 2.0), 2 * x)
    assert torch.equal(made((4, 256), cluster=4)(x, 2.0), 2 * x)


def test_what_does_not_compile_and_what_the_host_runs_is_refused():
    x, op = torch.ones(8, device="cuda"), noyau.op("f32[n] -> f32[n]")(lambda x: x * 2)
    op.kernel("__global__ void f(const float *x, float *out) { out[0] = y; }", language="cuda", launch=(1, 1))
    with pytest.raises(BuildError, match=r'NVRTC makes no machine code for sm_90: .*identifier "y" is undefined'):
        on_tensors(op, "f", x)
    op.kernel("void g(const float *x, float *out) { }", language="cuda", launch=(1, 1))
    with pytest.raises(UnsupportedError, match="g is a function of the host, which is watched without a GPU alone"):
        on_tensors(op, "g", x)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one CUDA device")
def test_tensors_of_two_devices_are_refused():
    add = noyau.op("f32[n], f32[n] -> f32[n]")(lambda x, y: x + y)
    with pytest.raises(UnsupportedError, match="x on cuda:0 and y on cuda:1; tensors of one call lie on one device"):
        add(torch.ones(8, device="cuda:0"), torch.ones(8, device="cuda:1"))
