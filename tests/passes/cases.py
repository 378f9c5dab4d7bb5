"""Random graphs for the tests of passes, and whether a pass left what they compute as it was."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import ml_dtypes
import numpy as np

from noyau.dtypes import DType
from noyau.ir.checking import check
from noyau.ir.evaluation import evaluate
from noyau.ir.graph import Constant, Graph, Map, constant
from tests.judging import Judge
from tests.nodes import given, graph, value, view
from tests.random_graphs import Case, generate

COUNT = 200


def inputs_of(made: Graph, case: Case) -> dict[str, np.ndarray]:
    """Arrays for the inputs of a changed graph: those of the case, and scalars that were constants before."""
    known = {node.output: node.kind.value for node in case.graph.nodes if isinstance(node.kind, Constant)}
    return {node.output: {**known, **case.inputs}[node.output] for node in made.inputs}


def changed_bits(change: Callable[[Graph], Graph], *, signed_zeros: bool = True) -> list[int]:
    """The seeds of the graphs of which a pass changed a bit; without `signed_zeros` 0 and -0 are alike."""
    return [seed for seed in range(COUNT) if _changes_bits(change, generate(seed), signed_zeros)]


def _changes_bits(change: Callable[[Graph], Graph], case: Case, signed_zeros: bool) -> bool:
    made = check(change(case.graph))
    before = evaluate(case.graph, case.inputs, sizes=case.sizes)
    after = evaluate(made, inputs_of(made, case), sizes=case.sizes)
    same = all(_same(before[name], after[name], signed_zeros) for name in made.outputs)
    return made.outputs != case.graph.outputs or not same


def _same(one: np.ndarray, other: np.ndarray, signed_zeros: bool) -> bool:
    """Equal in dtype, shape and every cell; the bits of a NaN do not matter."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind not in "fV":
        return bool((one == other).all())
    wide, also = one.astype(np.float64), other.astype(np.float64)
    alike = (wide == also) & ((np.signbit(wide) == np.signbit(also)) | (not signed_zeros))
    return bool((alike | (np.isnan(wide) & np.isnan(also))).all())


def changed_results(change: Callable[[Graph], Graph]) -> list[str]:
    """What a pass made wrong, beyond what rounding excuses."""
    faults = []
    for seed in range(COUNT):
        case = generate(seed)
        made, judge = check(change(case.graph)), Judge(case.graph, case.inputs)
        after = evaluate(made, inputs_of(made, case), sizes=case.sizes)
        if set(made.outputs) != set(case.graph.outputs):
            faults.append(f"seed {seed}: other outputs")
        faults += [f"seed {seed}: {fault}" for name in made.outputs if (fault := judge.wrong(name, after[name]))]
    return faults


def numbers(dtype: DType) -> np.ndarray:
    """The ends of the range of a float dtype, and numbers in between, of both signs."""
    info = ml_dtypes.finfo(dtype.numpy)
    ends = [0.0, info.smallest_subnormal, info.smallest_normal, info.eps, info.max / 16, info.max, np.inf]
    some = [0.3, 1.0, 2.0, 7.0, float(info.max) ** 0.25, float(info.max) ** 0.5, float(info.max) ** -0.3]
    plus = np.array([float(x) for x in ends + some])
    return np.concatenate([plus, -plus, [np.nan]]).astype(dtype.numpy)


def grid(dtype: DType) -> dict[str, np.ndarray]:
    """Every pair of the numbers."""
    pairs = np.array(list(itertools.product(numbers(dtype), repeat=2)))
    return {"x": pairs[:, 0].astype(dtype.numpy), "v": pairs[:, 1].astype(dtype.numpy)}


def spelt(dtype: DType, *steps: str) -> Graph:
    """A graph of x and v, both of n cells; a step is `name function operands`, of which numbers are constants."""
    nodes = [given("x", dtype, "n"), given("v", dtype, "n")]
    for step in steps:
        name, function, *operands = step.split()
        for k, operand in enumerate(operands):
            if not operand[0].isalpha():
                nodes.append(constant(f"{name}{k}", np.asarray(float(operand)).astype(dtype.numpy)))
                nodes.append(value(f"{name}{k}_wide", view(), f"{name}{k}", dtype, "n"))
                operands[k] = f"{name}{k}_wide"
        nodes.append(value(name, Map(function), " ".join(operands), dtype, "n"))
    return graph(nodes[-1].output, *nodes)


def functions(made: Graph) -> list[str]:
    """The scalar functions of a graph, in order."""
    return [node.kind.function for node in made.nodes if isinstance(node.kind, Map)]
