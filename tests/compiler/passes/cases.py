"""Random graphs for the tests of passes, and whether a pass left what they compute as it was."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import ml_dtypes
import numpy as np

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.graph import Constant, Graph, Map, constant
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check
from tests.judged import Judge
from tests.nodes import given, graph, value, view
from tests.random_graphs import Case, generate

COUNT = 60
Arrays = Mapping[str, np.ndarray]


def inputs_of(made: Graph, case: Case) -> dict[str, np.ndarray]:
    """Arrays for the inputs of a changed graph: those of the case, and scalars that were constants before."""
    known = {node.output: node.kind.value for node in case.graph.nodes if isinstance(node.kind, Constant)}
    return {node.output: {**known, **case.inputs}[node.output] for node in made.inputs}


def changed_bits(change: Callable[[Graph], Graph], *, signed_zeros: bool = True) -> list[int]:
    """The seeds of the graphs of which a pass changed a bit; without `signed_zeros` 0 and -0 are alike."""
    return [seed for seed in range(COUNT) if _changes_bits(change, generate(seed), signed_zeros)]


def _changes_bits(change: Callable[[Graph], Graph], case: Case, signed_zeros: bool) -> bool:
    made = check(change(case.graph))
    return made.outputs != case.graph.outputs or not all(
        _same(before[name], after[name], signed_zeros)
        for before, after in _both(case, made)
        for name in case.graph.outputs
    )


def _both(case: Case, made: Graph) -> Iterator[tuple[Arrays, Arrays]]:
    """What a graph and a changed one give: at the sizes of the case, and at others that it can be evaluated at."""
    before = evaluate(case.graph, case.inputs, sizes=case.sizes)
    yield before, evaluate(made, inputs_of(made, case), sizes=case.sizes)
    for other in _resized(case):
        try:
            before = evaluate(case.graph, other.inputs, sizes=other.sizes)
        except (InputError, ValueError, IndexError, ZeroDivisionError):  # of an index that is beyond a smaller array
            continue
        yield before, evaluate(made, inputs_of(made, other), sizes=other.sizes)


def _resized(case: Case) -> Iterator[Case]:
    """The case at other sizes, its arrays repeated or cut."""
    for sizes in [dict.fromkeys(case.sizes, 1), {name: k for k, name in enumerate(case.sizes)}] if case.sizes else []:
        shapes = {n.output: [int(dim.evaluate(sizes)) for dim in n.shape] for n in case.graph.inputs}
        if min((extent for shape in shapes.values() for extent in shape), default=0) >= 0:
            inputs = {
                name: np.resize(case.inputs[name], shape) if case.inputs[name].size else _zeros(case, name, shape)
                for name, shape in shapes.items()
            }
            yield replace(case, inputs=inputs, sizes=sizes)


def _zeros(case: Case, name: str, shape: list[int]) -> np.ndarray:
    return np.zeros(shape, case.inputs[name].dtype)


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
