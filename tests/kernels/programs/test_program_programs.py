from __future__ import annotations

import numpy as np
import pytest

import noyau
from noyau.compiler.partition import cut as partition_cut
from noyau.ir.graph import Select
from noyau.ir.loop_verifier import check as check_loops
from noyau.ir.loops import Role
from noyau.ir.walk import targets_of
from noyau.kernels.programs.program import KernelStep, LibraryStep, ProgramRunner, by_numpy
from tests.ops.dispatch.ops import generated, linear_op, numbers, softmax_op


def steps(op, *arrays):
    return [type(step).__name__ for step in generated(op, *arrays).program.steps]


def stored(made):
    """The values that each launch of a program of one kernel stores."""
    (step,) = made.steps
    sources = {buffer.name: buffer.source for buffer in step.lowered.buffers}
    return [{sources[name] for name in targets_of(launch.body)} for launch in step.lowered.launches]


def test_what_fuses_is_one_kernel_with_the_inputs_of_the_call():
    made = generated(softmax_op(), numbers(3, 4)).program
    assert made.single is not None
    assert [buffer.name for buffer in made.single.buffers] == ["x", "out"]
    assert made.single.name == "softmax"


def test_an_op_that_is_one_kernel_is_lowered_as_one_and_not_on_the_way_there(monkeypatch):
    @noyau.op("f32[n] -> f32[n, 8]")
    def powers(x):
        out = np.empty((x.shape[0], 8), np.float32)
        for column in range(8):
            out[:, column] = x * column
        return out

    lowered = []
    monkeypatch.setattr(partition_cut, "kernel_of_group", lambda group: lowered.append(group.graph) or group.kernel)
    made = generated(powers, numbers(5)).program
    assert made.single is not None
    largest = max(len(graph.nodes) for graph in lowered)
    assert largest > 16
    assert sum(2 * len(graph.nodes) > largest for graph in lowered) == 1


def test_a_matrix_product_is_left_to_numpy():
    made = generated(linear_op(), numbers(3, 4), numbers(4, 5), numbers(5)).program
    assert made.single is None
    library, kernel = made.steps
    assert isinstance(library, LibraryStep)
    assert library.reason == "a product of matrices is a call of BLAS"
    assert isinstance(kernel, KernelStep)
    assert [node.output for node in kernel.graph.inputs][:1] == ["bias"]


def test_products_by_a_vector_are_sums_in_the_kernel_around_them():
    @noyau.op("f32[n, m], f32[n], f32[m] -> f32[m]")
    def gradient(x, y, w):
        return x.T @ (np.tanh(x @ w) - y) / len(y)

    @noyau.op("f32[b, n, m], f32[b, m] -> f32[b, n]")
    def batch(x, w):
        return np.einsum("bij,bj->bi", x, w)

    for op, shapes in ((gradient, [(30, 20), (30,), (20,)]), (batch, [(2, 30, 20), (2, 20)])):
        arrays = [numbers(*shape) for shape in shapes]
        assert generated(op, *arrays).program.only is not None
        assert np.allclose(op(*arrays), op.reference(*arrays), rtol=1e-5, atol=1e-5)
        assert op.explain(*arrays).kernel == "c"


def test_what_follows_from_sizes_alone_is_computed_once_for_each():
    @noyau.op("f32[n, m], f32[n, k] -> f32[m, k]")
    def means(x, w):
        return x.T @ w / len(w)

    made = generated(means, numbers(3, 4), numbers(3, 2)).program
    calls = []

    def library(graph):
        call = by_numpy(graph)
        if graph.inputs:
            return call
        return lambda arrays, sizes: calls.append(dict(sizes)) or call(arrays, sizes)

    kernels = [lambda arrays, sizes: [arrays[0] / arrays[1]]]
    run = ProgramRunner(made, kernels, library)
    for rows in (3, 3, 5, 5, 3):
        x, w = numbers(rows, 4), numbers(rows, 2)
        assert np.allclose(run(x, w)[0], means.reference(x, w))
    assert [next(iter(sizes.values())) for sizes in calls] == [3, 5, 3]


def test_a_result_that_follows_from_sizes_alone_is_made_anew():
    @noyau.op
    def counted(x, w):
        return x @ w, np.arange(x.shape[0])

    for _ in range(2):
        _, places = counted(numbers(3, 4), numbers(4, 2))
        assert places.tolist() == [0, 1, 2]
        places[:] = 7


def test_nothing_but_a_product_needs_no_kernel():
    @noyau.op("f32[m, k], f32[k, n] -> f32[n, m]")
    def product(x, y):
        return (x @ y).T

    assert steps(product, numbers(2, 3), numbers(3, 4)) == ["LibraryStep"]


def test_views_of_operands_go_along_with_the_product():
    @noyau.op("f32[b, s, 32], f32[b, s, 32], f32[b, s, 32] -> f32[b, s, 32]")
    def attention(q, k, v):
        b, s, d = q.shape
        q, k, v = (t.reshape(b, s, 4, 8).transpose(0, 2, 1, 3) for t in (q, k, v))
        a = q @ k.transpose(0, 1, 3, 2) / np.float32(8**0.5)
        e = np.exp(a - a.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(b, s, d)

    arrays = [numbers(2, 5, 32, seed=seed) for seed in range(3)]
    assert steps(attention, *arrays) == ["LibraryStep", "KernelStep", "LibraryStep", "KernelStep"]
    assert np.allclose(attention(*arrays), attention.reference(*arrays), atol=1e-6)


def test_a_value_that_a_product_and_a_kernel_read_is_made_once():
    @noyau.op("f32[n, n] -> y: f32[n, n], z: f32[n, n]")
    def both(x):
        e = np.exp(x)
        return e @ e, e + 1

    made = generated(both, numbers(3, 3)).program
    assert [type(step).__name__ for step in made.steps] == ["KernelStep", "LibraryStep"]
    assert set(made.steps[0].graph.outputs) == {"e", "z"}


def test_why_two_values_are_not_one_kernel():
    @noyau.op("f32[n, n] -> f32[n, n]")
    def around(x):
        e = np.exp(x)
        return e / (e @ e).sum(0)

    made = generated(around, numbers(3, 3)).program
    assert [type(step).__name__ for step in made.steps] == ["KernelStep", "LibraryStep", "KernelStep"]
    assert made.cuts == (("e, v5", "contract stands between them: it needs the first, the second needs it"),)


def test_every_input_of_a_call_is_one_of_the_kernel():
    @noyau.op("f32[n], f32[n], f32 -> f32[n]")
    def second(x, y, z):
        return y * 2

    single = generated(second, numbers(3), numbers(3), 1.0).program.single
    assert single is not None
    assert [buffer.name for buffer in single.buffers] == ["x", "y", "z", "out"]


def test_numbers_stand_in_the_text():
    @noyau.op("f32[n] -> f32[n]")
    def norm(x):
        return x / np.sqrt((x * x).mean() + np.float32(1e-6))

    made = generated(norm, numbers(8))
    assert "1e-06f" in made.text or "9.99999997e-07f" in made.text


def test_a_result_that_is_a_constant_or_an_input():
    @noyau.op("f32[n] -> same: f32[n], three: f32[3], turned: f32[n]")
    def ends(x):
        return x, np.array([1, 2, 3], np.float32), x[::-1]

    x = numbers(4)
    same, three, turned = ends(x)
    assert np.array_equal(same, x)
    assert not np.shares_memory(same, x)
    assert three.tolist() == [1, 2, 3]
    assert np.array_equal(turned, x[::-1])


@pytest.mark.parametrize("layout", ["packed", "inner", "strided"])
def test_strided_inputs_of_several_kernels(layout):
    room = numbers(60, 72)
    x = {"packed": room[:20, :24].copy(), "inner": room[:20, :24], "strided": room[::3, ::3]}[layout]
    weight, bias = numbers(24, 25), numbers(25)
    linear = linear_op()
    assert np.allclose(linear(x, weight, bias), linear.reference(x, weight, bias), rtol=1e-5, atol=1e-5)


def test_arrays_of_the_function_are_given_to_its_kernels():
    taps = np.array([0.25, 0.5, 0.125], np.float32)

    @noyau.op("f32[n, 3] -> f32[n, 3]")
    def weighted(x):
        return np.exp(x * taps)

    made = generated(weighted, numbers(4, 3)).program
    assert made.single is None
    assert np.allclose(weighted(numbers(4, 3)), np.exp(numbers(4, 3) * taps))


def test_columns_of_one_array_are_one_kernel():
    """What a layer norm gives back to its weight and bias: one pass over the rows."""

    @noyau.op("f32[rows, n], f32[rows, n] -> bias: f32[n], weight: f32[n], largest: f32[rows]")
    def sums(grad, x):
        return grad.sum(0), (grad * x).sum(0), x.max(-1)

    arrays = [numbers(7, 5, seed=seed) for seed in range(2)]
    made = generated(sums, *arrays).program
    assert {"bias", "weight"} in stored(made)
    assert all(np.allclose(*pair, atol=1e-5) for pair in zip(sums(*arrays), sums.reference(*arrays), strict=True))


def test_columns_over_other_axes_or_of_other_arrays_stay_apart():
    @noyau.op("f32[a, b, n], f32[a, b, n] -> p: f32[b, n], q: f32[n], r: f32[n]")
    def sums(x, y):
        return x.sum(0), x.sum((0, 1)), y.sum((0, 1))

    made = generated(sums, numbers(2, 3, 4), numbers(2, 3, 4)).program
    assert stored(made) == [{"p"}, {"q"}, {"r"}]


def test_rounds_that_read_back_what_they_write_are_cut_before_they_multiply():
    """Each round reads two cells of the one before: all rounds in one kernel would compute 2**12 values a cell."""

    @noyau.op("f32[n, m] -> f32[n, m]")
    def piled(x):
        u = x.copy()
        for _ in range(12):
            u[1:] += u[:-1]
        return u

    x = numbers(9, 4)
    made = generated(piled, x)
    assert 1 < len(stored(made.program)) <= 2 * 12
    assert np.allclose(piled(x), piled.reference(x), rtol=1e-5)


def small_and_large(x, m):
    h = np.concatenate([x, np.ones((len(x), 1), x.dtype)], 1) @ m.T
    return h[:, :3] / (1 + h[:, 3:4] ** 2)


@pytest.mark.parametrize(("extent", "kinds"), [(4, {"KernelStep"}), (40, {"LibraryStep", "KernelStep"})])
def test_a_small_product_is_in_the_kernel_of_what_makes_and_reads_it(extent, kinds):
    op, pair = noyau.op(small_and_large), (numbers(50, extent - 1), numbers(extent, extent))
    want = small_and_large(*pair)
    assert np.allclose(op(*pair), want, rtol=1e-4, atol=1e-4)
    ((signed,),) = op.calls.kinds.values()
    (chosen,) = next(iter(signed.calls.choosing.chosen.values()))
    made = chosen.only.runner.generated.program
    assert {type(step).__name__ for step in made.steps} == kinds
    assert (made.single is not None) == (extent == 4)


def test_products_of_vectors_need_no_library():
    @noyau.op("f64[n], f64[n] -> f64")
    def pearson(x, y):
        x, y = x - x.mean(), y - y.mean()
        return np.dot(x, y) / np.sqrt(np.dot(x, x) * np.dot(y, y))

    pair = numbers(70).astype("f8"), numbers(70, seed=3).astype("f8")
    assert steps(pearson, *pair) == ["KernelStep"]
    assert np.isclose(pearson(*pair), np.corrcoef(*pair)[0, 1])


def test_a_table_that_all_rows_read_is_a_launch_and_the_rest_another():
    """Rows in pairs that are rotated, and written side by side."""

    def rotate(x):
        t = np.arange(x.shape[1])[:, None] / 100 ** (np.arange(0, x.shape[2], 2) / x.shape[2])
        a, b = x[..., ::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., ::2] = a * np.cos(t) - b * np.sin(t)
        out[..., 1::2] = a * np.sin(t) + b * np.cos(t)
        return out

    op, x = noyau.op(rotate), numbers(3, 5, 8).astype("f8")
    assert np.allclose(op(x), rotate(x), rtol=1e-12)
    ((signed,),) = op.calls.kinds.values()
    (chosen,) = next(iter(signed.calls.choosing.chosen.values()))
    made = chosen.only.runner.generated.program
    assert made.only is not None and len(made.only.launches) > 1
    assert [each for each in stored(made) if "out" in each] == [{"out"}]


def test_more_operators_than_a_kernel_has_are_joined_many_at_a_time(monkeypatch):
    @noyau.op("f32[n, m] -> f32[n, m]")
    def blur(u):
        out = np.zeros_like(u)
        for shift in range(30):
            out += np.exp(-(np.roll(u, shift, axis=0) ** 2))
        return out

    lowered = []
    monkeypatch.setattr(partition_cut, "kernel_of_group", lambda group: lowered.append(group.graph) or group.kernel)
    made = generated(blur, numbers(40, 3)).program
    assert 1 < len(stored(made)) < 5
    largest = max(len(graph.nodes) for graph in lowered)
    assert sum(2 * len(graph.nodes) > largest for graph in lowered) <= 2 * len(stored(made))


def several_loops(x, y):
    first = np.cumsum(x, -1)
    return first / first.max(), y.sum(0) * x.shape[1], np.arange(x.shape[0])


@pytest.mark.parametrize("turn", [lambda x: x, lambda x: x[:, ::2], lambda x: x.T, lambda x: x[::-1, 1:]])
def test_kernels_that_follow_each_other_are_launches_of_one(turn):
    op, (x, y) = noyau.op(several_loops), (turn(numbers(6, 8, seed=seed).astype("f8")) for seed in range(2))
    want = several_loops(x, y)
    for _ in range(2):
        assert all(np.allclose(*pair) for pair in zip(op(x, y), want, strict=True))
    out = tuple(map(np.empty_like, want))
    assert op(x, y, out=out) is out
    assert all(np.allclose(*pair) for pair in zip(out, want, strict=True))
    ((signed,),) = op.calls.kinds.values()
    (chosen,) = next(iter(signed.calls.choosing.chosen.values()))
    made = chosen.only.runner.generated.program
    assert made.single is not None and len(made.single.launches) > 2
    assert check_loops(made.single) is made.single
    assert check_loops(made.steps[0].lowered) is made.steps[0].lowered
    assert [buffer.source for buffer in made.single.of(Role.OUTPUT)] == list(made.graph.outputs)


def test_kernels_around_a_product_stay_apart():
    def around(x, w):
        return np.cumsum(np.exp(x) @ w, 0)

    x, w = numbers(30, 40), numbers(40, 50)
    made = generated(noyau.op("f32[m, k], f32[k, n] -> f32[m, n]")(around), x, w).program
    assert [type(step).__name__ for step in made.steps] == ["KernelStep", "LibraryStep", "KernelStep"]
    assert made.only is None


TABLE = np.array([0.5, 2.0, -1.0, 4.0])


def looked_up(x, k):
    return (TABLE[k] * x).sum(), x.max()


def test_a_table_is_an_argument_that_no_caller_gives():
    op, x, k = noyau.op(looked_up), numbers(50).astype("f8"), np.arange(50) % 4
    for _ in range(2):
        assert np.allclose(op(x, k), looked_up(x, k))
    ((signed,),) = op.calls.kinds.values()
    (chosen,) = next(iter(signed.calls.choosing.chosen.values()))
    made = chosen.only.runner.generated.program
    assert made.only is not None and made.single is None
    assert [each.tolist() for each in made.constants] == [TABLE.tolist()]
    with pytest.raises(IndexError):
        op(x, k + 1)
    scalar = np.empty((), "f8")
    with pytest.raises(noyau.InputError, match="shares memory"):
        op(x, k, out=(scalar, scalar))


def test_results_that_no_launch_computes_are_copies():
    def ends(x):
        return np.cumsum(x) / x.sum(), TABLE, x, TABLE[::-1]

    op, x = noyau.op(ends), numbers(4).astype("f8")
    for _ in range(2):
        made = op(x)
        assert all(np.allclose(*pair) for pair in zip(made, ends(x), strict=True))
        assert not any(np.shares_memory(each, other) for each in made for other in (x, TABLE))


def test_sums_into_one_window_are_one_kernel_without_the_boundary_of_each():
    @noyau.op("f32[m, n] -> f32[m, n]")
    def laplacian(x):
        out = np.zeros_like(x)
        inner = slice(1, -1), slice(1, -1)
        for axis in range(2):
            for shifted in (slice(None, -2), slice(2, None)):
                out[inner] += x[tuple(shifted if k == axis else at for k, at in enumerate(inner))]
        return out

    made = generated(laplacian, numbers(7, 6)).program
    assert made.single is not None
    assert sum(isinstance(node.kind, Select) for node in made.graph.nodes) == 2
