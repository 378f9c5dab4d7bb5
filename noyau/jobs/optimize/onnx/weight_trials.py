"""Weights in few bits tried, product by product: timed with cold weights in place of float32, and judged by float64."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx
from onnx import helper, numpy_helper

from noyau.dtypes import DType
from noyau.errors import CheckError, NoyauError
from noyau.hosts.onnxruntime.function_bodies import CORE_DOMAINS
from noyau.hosts.onnxruntime.products import Product
from noyau.hosts.onnxruntime.runs import run
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.hosts.onnxruntime.weight_variants import Variant, with_variants
from noyau.jobs.optimize.candidate import BindingTiming, decisive, losing, overall
from noyau.jobs.optimize.onnx.kernel_timing import BenchmarkCase, OnnxBench
from noyau.timing.conditions import last_level_bytes
from noyau.timing.verdict import Verdict

Flow = Mapping[str, np.ndarray]  # values of one run, by name
MOST_BYTES = 1 << 28  # of the weights of a model that is timed
FEW_ROWS = 32  # with more, weights that come from memory once are used so often that it is of no matter
JUDGED_ROWS = 64
LARGE = (1, 30, 1000)  # times a channel
_COLUMNS = 4096  # of a product that are in float64 at a time: they take twice the memory


@dataclass(frozen=True, slots=True)
class Trial:
    """Variant of the weights of a product, tried. `errors` is the largest one of a row over the largest value of the
    row, on activations and with a channel of every second row times 30 and times 1000; `before_s`: of the product in
    float32, at each of the timings; `reason`: why it is out."""

    variant: Variant
    timings: tuple[BindingTiming, ...] = ()
    before_s: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()
    reason: str = ""


def equal_products(products: Sequence[Product], flows: Sequence[Flow]) -> list[list[Product]]:
    """The products by what their time rests on: operator, shapes of weights and operands."""
    groups: dict[object, list[Product]] = defaultdict(list)
    for each in products:
        operands = tuple(flow[each.operand].shape for flow in flows)
        groups[each.node.op_type, each.shape, bool(each.bias), operands].append(each)
    return list(groups.values())


def time_variants(
    bench: OnnxBench,
    products: Sequence[Product],
    variants: Sequence[Variant],
    flows: Sequence[tuple[Mapping[str, int], Flow]],
    total_bytes: int,
    limit_s: float,
) -> list[Trial]:
    """Time variants of equal products at each binding, all of them in one model; one that loses at a binding is not
    timed at the others. `total_bytes`: of the weights of all products; `limit_s` as `OnnxBench.compare` has it."""
    scenes = [BenchmarkCase(sizes, {"x": flow[products[0].operand]}) for sizes, flow in flows]
    counts = [_copies(products, scene.arrays["x"], total_bytes) for scene in scenes]
    bench = replace(bench, library=None, whole=False)
    trials = [Trial(each) for each in variants]
    for count in dict.fromkeys(counts):
        before = model_of(products[:count], scenes[0].arrays["x"].ndim, bench.original.runnable, brief=True)
        same = [scene for scene, its in zip(scenes, counts, strict=True) if its == count]
        batches = [same[:1], same[1:]] if same[0] is scenes[0] else [same]
        for batch in filter(None, batches):
            trials = [_timed(bench, before, -(-count // len(products)), each, batch, limit_s) for each in trials]
    return [replace(each, reason=each.reason or loss_of(each.timings)) for each in trials]


def _timed(
    bench: OnnxBench, before: onnx.ModelProto, times: int, trial: Trial, scenes: Sequence[BenchmarkCase], limit_s: float
) -> Trial:
    """A trial with the timings of some more bindings: of a model of products that is repeated so many times."""
    if trial.reason:
        return trial
    if bench.deadline.passed:
        return replace(trial, reason=bench.deadline.fault)
    try:
        after = with_variants(
            before, dict.fromkeys((node.output[0] for node in before.graph.node), trial.variant), None
        )
        before, after = repeated(before, times), repeated(after, times)
        bench = replace(bench, original=replace(bench.original, model=before))  # nothing of it lies in other files
        timings = [*filter(None, bench.compare(before, after, scenes, str(trial.variant), limit_s))]
    except NoyauError as error:
        return replace(trial, reason=f"{'is wrong' if isinstance(error, CheckError) else 'does not run'}: {error}")
    before_s = (each.hot.before_median_s / len(before.graph.output) for each in timings)
    trial = replace(trial, timings=(*trial.timings, *timings), before_s=(*trial.before_s, *before_s))
    loser = losing(trial.timings)
    return replace(trial, reason="" if loser is None else str(loser))


def loss_of(timings: Sequence[BindingTiming]) -> str:
    """Why a variant with these timings is not one to choose, or nothing: it is FASTER at one and SLOWER at none."""
    decider = losing(timings) or decisive(timings)
    if overall(each.verdict for each in timings) is Verdict.FASTER and losing(timings) is None:
        return ""
    return "not timed" if decider is None else str(decider)


def _copies(products: Sequence[Product], operand: np.ndarray, total_bytes: int) -> int:
    """The number of products of a model that is timed: so many that weights are as cold as in the model itself, and no
    less cold than after twice the last-level cache; two where they are of no matter."""
    if math.prod(operand.shape[:-1]) > FEW_ROWS:
        return 2
    wanted_bytes = min(max(total_bytes, 2 * last_level_bytes()), MOST_BYTES)
    return max(wanted_bytes // products[0].bytes, 1)


def model_of(products: Sequence[Product], rank: int, like: onnx.ModelProto, *, brief: bool = False) -> onnx.ModelProto:
    """A model of some products that read one operand `x` of a rank, with zeros for what they add. `brief`: of each
    result the first row alone is an output, so that the rest is as warm as in a model."""
    nodes, arrays, outputs = list[onnx.NodeProto](), dict[str, np.ndarray](), list[str]()
    for number, product in enumerate(products):
        output, names = f"product_{number}", [f"weights_{number}", f"bias_{number}"][: 1 + bool(product.bias)]
        arrays |= zip(names, (product.weights(), np.zeros(product.shape[1], np.float32)), strict=False)
        nodes.append(helper.make_node(product.node.op_type, ["x", *names], [output]))
        if brief:
            arrays[f"first_{number}"] = np.array(0)
            nodes.append(helper.make_node("Gather", [output, f"first_{number}"], [f"row_{number}"], axis=rank - 2))
        outputs.append(f"row_{number}" if brief else output)
    end = partial(helper.make_tensor_value_info, elem_type=DType.F32.onnx)
    ends = [end("x", shape=[None] * rank)], [end(output, shape=None) for output in outputs]
    graph = helper.make_graph(
        nodes, "products", *ends, [numpy_helper.from_array(a, name) for name, a in arrays.items()]
    )
    opsets = [each for each in like.opset_import if each.domain in CORE_DOMAINS]
    return helper.make_model(graph, opset_imports=opsets, ir_version=like.ir_version)


def repeated(model: onnx.ModelProto, times: int) -> onnx.ModelProto:
    """The nodes of a model that reads `x` so many times, each time with tensors of their own."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for number in range(1, times):
        for before, after in (
            (model.graph.initializer, result.graph.initializer),
            (model.graph.node, result.graph.node),
            (model.graph.output, result.graph.output),
        ):
            after.extend(before)
            for each in after[-len(before) :]:
                each.name += f"_{number}" if each.name else ""
                if before is model.graph.node:
                    each.input[:] = [name if name in ("", "x") else f"{name}_{number}" for name in each.input]
                    each.output[:] = [f"{name}_{number}" for name in each.output]
    return result


def judge_variants(
    product: Product, variants: Sequence[Variant], flows: Sequence[Flow], like: onnx.ModelProto
) -> list[tuple[float, ...]]:
    """The errors of a product in onnxruntime, as a Trial has them: of float32, then of each of some variants; on rows
    that it reads in the model, evenly from all runs, that are finite."""
    rows = np.concatenate([flow[product.operand].reshape(-1, product.shape[0]) for flow in flows])
    rows = rows[np.isfinite(rows).all(axis=1)]
    rows = rows[:: max(len(rows) // JUDGED_ROWS, 1)][:JUDGED_ROWS]
    weights, operands = product.weights(), [rows.copy() for _ in LARGE]
    for times, operand in zip(LARGE, operands, strict=True):
        operand[::2, np.abs(rows).max(axis=0, initial=0).argmax()] *= times
    columns = range(0, weights.shape[1], _COLUMNS)
    parts = (weights[:, at : at + _COLUMNS].astype(np.float64) for at in columns)
    exact = np.hstack([np.concatenate(operands).astype(np.float64) @ part for part in parts])
    largest = np.abs(exact).max(axis=1)

    def errors(model: onnx.ModelProto) -> tuple[float, ...]:
        session = open_session(model.SerializeToString(), threads=1)
        results = np.concatenate([run(session, {"x": each})["product_0"] for each in operands])
        apart = np.abs(results - exact).max(axis=1) / np.where(largest > 0, largest, np.inf)
        return tuple(float(each.max(initial=0)) for each in np.split(apart, len(LARGE)))

    plain = model_of([product], 2, like)
    return [errors(plain), *(errors(with_variants(plain, {"product_0": each}, None)) for each in variants)]
