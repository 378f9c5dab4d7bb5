"""A deep model has the kernels of a shallow one, each in more places."""

from __future__ import annotations

from functools import cache

import numpy as np

from noyau.codegen.plan import Plan, plan
from tests.compiler.passes.fusing import Fusing
from tests.compiler.passes.llamas import llama

FEW, MANY = 2, 32


@cache
def cut(layers: int) -> tuple[Fusing, Plan]:
    made = Fusing(llama(layers))
    return made, plan(made.partition.groups, [node.op_type for node in made.model.graph.node], "x86-64")


def digests(layers: int) -> dict[str, int]:
    """How many places each kernel has, by its digest."""
    return {kernel.operator.rsplit("_", 1)[1]: len(kernel.groups) for kernel in cut(layers)[1].kernels}


def test_thirty_two_layers_have_the_kernels_of_two():
    assert digests(MANY).keys() == digests(FEW).keys()


def test_and_each_kernel_in_as_many_places_as_there_are_layers():
    few, many = digests(FEW), digests(MANY)
    more = {digest: many[digest] - few[digest] for digest in few}
    assert set(more.values()) <= {0, MANY - FEW, 2 * (MANY - FEW)}
    assert sum(more.values()) >= 6 * (MANY - FEW)


def test_two_layers_compute_what_the_model_does():
    noise = np.random.default_rng(0)
    mask = np.where(np.tri(5, dtype=bool), 0, np.finfo(np.float32).min).astype(np.float32)
    angles = noise.normal(size=(5, 4)).astype(np.float32)
    feeds = {
        "x0": noise.normal(size=(2, 5, 8)).astype(np.float32),
        "mask": np.broadcast_to(mask, (2, 1, 5, 5)).copy(),
        "cos": np.cos(angles),
        "sin": np.sin(angles),
    }
    cut(FEW)[0].agrees(feeds)
