from __future__ import annotations

import pytest
import torch

from tests.frontends.torch.exports import compare, imported, together
from tests.frontends.torch.test_calculations import numbers

F = torch.nn.functional
WHERE = torch.tensor([2, 0, 1, 2])


@pytest.mark.parametrize("dynamic", [False, True])
def test_lookups(dynamic):
    compare(lambda t, i: F.embedding(i, t), numbers(3, 5), WHERE, dynamic=dynamic)


def test_lookups_in_tensors_of_known_sizes():
    cases = [
        (lambda x, i: (x[i], x[:, i], x.index_select(1, i), x[i, :, i]), [numbers(3, 4, 5), WHERE]),
        (lambda x, i: x.gather(1, i[None].expand(3, -1)), [numbers(3, 4), WHERE]),
        (lambda x, i: x[i - 3], [numbers(3, 4), WHERE]),
        (lambda x, i, j: x[i[:, None], j], [numbers(3, 4), WHERE, torch.tensor([3, 0])]),
    ]
    every = together([(function, len(args)) for function, args in cases])
    compare(every, *(arg.clone() for _, args in cases for arg in args))


def test_scatters():
    x, where, updates = numbers(3, 4), WHERE[None].expand(3, -1), numbers(3, 4) * 2
    cases = [
        (lambda x, i, u: x.scatter(0, i, u), [x[:, :4], torch.tensor([[2, 0, 1, 2]]), updates[:1]]),
        (lambda x, i, u: x.scatter_add(1, i, u), [x, where, updates]),
        (lambda x, i, u: x.index_add(0, i, u), [x, WHERE, numbers(4, 4)]),
        (lambda x, i, u: x.index_put((i,), u, accumulate=True), [x, WHERE, numbers(4, 4)]),
        (lambda x, i: x.scatter(1, i, 0.5), [x, where]),
    ]
    every = together([(function, len(args)) for function, args in cases])
    compare(every, *(arg.clone() for _, args in cases for arg in args))


def test_values_and_indices_of_rank_0_are_vectors_of_one_cell():
    one, row, at, ats = torch.tensor(2.5), numbers(4), torch.tensor(0), torch.tensor([0])
    cases = [
        (lambda x, i: (x.index_select(0, i), x.gather(0, i)), [one, at]),
        (lambda x, i: (x.index_select(0, i), x.gather(0, i)), [one, ats]),
        (lambda x, i: (x.index_select(0, i), x.gather(0, i), x.scatter(0, i, 7.5)), [row, at]),
        (lambda x, i, u: (x.scatter(0, i, u), x.scatter_add(0, i, u), x.index_add(0, i, u)), [one, at, numbers(1)[0]]),
        (lambda x, i, u: (x.scatter(0, i, u), x.scatter_add(0, i, u)), [one, ats, numbers(1)]),
        (lambda x, i, u: (x.scatter(0, i, u[0]), x.index_add(0, i, u, alpha=3)), [row, at, numbers(1)]),
    ]
    every = together([(function, len(args)) for function, args in cases])
    compare(every, *(arg.clone() for _, args in cases for arg in args))


def test_no_indices_at_all_are_of_any_rank():
    def none(x, i):
        return x.gather(0, i) + 1, x.scatter(0, i, 1.0) + 1, x.scatter_add(0, i, x[None, :0]) + 1

    compare(none, numbers(4), torch.zeros(0, 3, dtype=torch.int64))


def test_a_mask_is_a_boundary():
    made = imported(lambda x: x.index_put((x > 0.5,), torch.tensor(0.0)) + 1, [numbers(3, 4)])
    assert list(made.opaque.values()) == ["index_put by several arrays or a mask is left to torch"]
