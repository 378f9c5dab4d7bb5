"""Weights in few bits, as onnxruntime packs them: each product is tried, the fastest form chosen, and the whole model
confirmed before the choice is taken."""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from noyau.dtypes import DType
from noyau.errors import CheckError, NoyauError, UnsupportedError
from noyau.frontends.onnx_messages import CORE_DOMAINS
from noyau.hosts.onnxruntime.activations import ActivationCapture
from noyau.hosts.onnxruntime.inputs import ModelInputs, inputs_at
from noyau.hosts.onnxruntime.products import Product, products_of
from noyau.hosts.onnxruntime.runs import run
from noyau.hosts.onnxruntime.sessions import load_onnxruntime, open_session
from noyau.hosts.onnxruntime.write_back import drop_unread, live
from noyau.jobs.command_line import Step
from noyau.jobs.optimize import weight_choice
from noyau.jobs.optimize.onnx.kernel_timing import Arrays, BenchmarkCase, OnnxBench
from noyau.jobs.optimize.onnx.options import OptimizeOptions
from noyau.jobs.optimize.onnx.whole_model import FinalModel, loss_of, time_whole
from noyau.jobs.optimize.pipeline import Say, losing
from noyau.jobs.optimize.weight_choice import LARGE, Choice, ProductTrials, Trial, trial_loss
from noyau.text import collect, free_name, several
from noyau.timing.comparison import DECIDED
from noyau.timing.conditions import last_level_bytes

MICROSOFT = "com.microsoft"
_BLOCKED_SINCE = 21  # the first opset whose DequantizeLinear has blocks and 4 bits
_INT8, _INT4 = 3, 22  # types of tensors; a byte holds two cells of 4 bits


@dataclass(frozen=True, slots=True)
class Variant:
    """A form of weights in few bits. `block`: the rows of a column that share a scale; 0: all of them, with activations
    in 8 bits with one scale. `level`: onnxruntime's accuracy level, 4 rounds activations to 8 bits, 0 does not."""

    bits: int
    block: int = 0
    level: int = 0

    def __str__(self) -> str:
        scales = f"in blocks of {self.block}, level {self.level}" if self.block else "by column"
        return f"{self.bits} bits {scales}"


_IN_BLOCKS = [Variant(bits, block, level) for bits in (8, 4) for block in (32, 128) for level in (0, 4)]
# By column with 7 bits too: sums of signed 8-bit cells saturate on processors without VNNI, and a file may run on other
# machines; the 8-bit cells here are unsigned, which never saturates and is slower there.
VARIANTS = (*_IN_BLOCKS, Variant(8), Variant(7))


def pack(weights: np.ndarray, variant: Variant) -> tuple[np.ndarray, np.ndarray]:
    """Weights f32[depth, width] as cells and scales: by column as i8 or u8[depth, width] and f32[width]; in blocks as
    u8[width, blocks, bytes] and f32[width, blocks]. UnsupportedError if this onnxruntime cannot pack this variant."""
    if not variant.block:
        largest = 2 ** (variant.bits - 1) - 1
        scales = np.abs(weights).max(axis=0) / np.float32(largest)
        scales[scales == 0] = 1
        cells = np.rint(weights / scales).clip(-largest, largest)
        return (cells + 128).astype(np.uint8) if variant.bits == 8 else cells.astype(np.int8), scales
    bits, block, (depth, width) = variant.bits, variant.block, weights.shape
    # onnxruntime's function in C: its wrapper in Python needs packages that onnxruntime does not depend on.
    if (function := getattr(load_onnxruntime().capi._pybind_state, f"quantize_matmul_{bits}bits", None)) is None:
        raise UnsupportedError(f"this onnxruntime does not pack weights in {bits} bits")
    blocks = -(-depth // block)
    whole = np.zeros((blocks * block, width), np.float32)
    whole[:depth] = weights
    cells = np.zeros((width, blocks, block * bits // 8), np.uint8)
    scales, middles = np.zeros(width * blocks, np.float32), np.zeros(width * -(-blocks * bits // 8), np.uint8)
    function(cells, whole, scales, middles, block, width, depth, True)
    return cells, scales.reshape(width, blocks)


def with_variants(model: onnx.ModelProto, variants: Mapping[str, Variant], folder: Path | None) -> onnx.ModelProto:
    """The model with the weights of some products, by their outputs' names, in few bits; the rest is unchanged."""
    result = deepcopy(model)
    occupied = {each.name for each in (*model.graph.initializer, *model.graph.input, *model.graph.node)}
    occupied.update(name for node in model.graph.node for name in node.output)
    opset = max((each.version for each in model.opset_import if each.domain in CORE_DOMAINS), default=1)
    products = {each.output: each for each in products_of(model, folder)[0] if each.output in variants}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        product = products.get(node.output[0]) if node.output else None
        if product is None:
            nodes.append(node)
            continue
        variant = variants[product.output]
        stem = free_name(f"{product.output}_int{variant.bits}", occupied)
        tensors, several = _in_few_bits(product, variant, opset, stem)
        result.graph.initializer.extend(tensors)
        nodes += several
    alive = live(nodes, {value.name for value in model.graph.output})  # a view of weights is dead without a reader
    del result.graph.node[:]
    pairs = zip(nodes, alive, strict=True)
    result.graph.node.extend(node for node, is_live in pairs if is_live or not any(node.output))
    drop_unread(result.graph, model.graph)
    if MICROSOFT not in {each.domain for each in result.opset_import}:
        result.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))
    return result


def _in_few_bits(
    product: Product, variant: Variant, opset: int, stem: str
) -> tuple[list[onnx.TensorProto], list[onnx.NodeProto]]:
    """Tensors and nodes in place of a product; their names begin with `stem`.

    Blocks at level 4 become standard DequantizeLinear and MatMul if the model's opset has them: onnxruntime turns these
    into MatMulNBits on loading, with the same bits, at that level. The others are onnxruntime's own operators."""
    (depth, width), bias, (cells, scales) = product.shape, product.bias, pack(product.weights(), variant)
    names = [f"{stem}_cells", f"{stem}_scales", f"{stem}_middles"]
    node, tensor = partial(onnx.helper.make_node, name=stem), onnx.numpy_helper.from_array
    if not variant.block:
        middles = np.full(width, 128 if variant.bits == 8 else 0, cells.dtype)
        tensors = [tensor(array, name) for array, name in zip((cells, scales, middles), names, strict=True)]
        inputs = [product.operand, *names, *([bias] if bias else [])]
        return tensors, [node("DynamicQuantizeMatMul", inputs, [product.output], domain=MICROSOFT)]
    if opset < _BLOCKED_SINCE or variant.level != 4 or depth % variant.block or bias:
        numbers = {"K": depth, "N": width, "bits": variant.bits, "block_size": variant.block}
        numbers["accuracy_level"] = variant.level
        inputs = [product.operand, *names[:2], *(["", "", bias] if bias else [])]
        own = node("MatMulNBits", inputs, [product.output], domain=MICROSOFT, **numbers)
        return [tensor(cells, names[0]), tensor(scales, names[1])], [own]
    # The zero point of unsigned cells is 8 or 128: flipping the topmost bit makes them signed.
    flat = cells if variant.bits == 8 else np.stack([cells & 15, cells >> 4], axis=-1)
    flat = (flat ^ (1 << (variant.bits - 1))).reshape(width, depth).T.reshape(-1)
    kind, flat = (_INT8, flat) if variant.bits == 8 else (_INT4, flat[0::2] | (flat[1::2] << 4))
    first = onnx.helper.make_tensor(names[0], kind, product.shape, flat.tobytes(), raw=True)
    plain = onnx.helper.make_node("DequantizeLinear", names[:2], [f"{stem}_plain"], axis=0, block_size=variant.block)
    tensors = [first, tensor(np.ascontiguousarray(scales.T), names[1])]
    return tensors, [plain, node("MatMul", [product.operand, f"{stem}_plain"], [product.output])]


@dataclass(slots=True)
class WeightStage:
    """The stage after a model's kernels are settled. `scenes`: its inputs at each binding; `calibration`: other inputs
    for errors and tokens; `tried`: the trials of its products."""

    final: FinalModel
    scenes: Sequence[BenchmarkCase]
    wishes: OptimizeOptions
    capturing: ActivationCapture
    feeds: ModelInputs
    limit_s: float
    say: Say
    calibration: Sequence[Arrays] = ()
    products: list[Product] = field(default_factory=list)
    tried: ProductTrials = field(default_factory=ProductTrials)
    before: list[Arrays] = field(default_factory=list)  # outputs in float32

    def run(self) -> FinalModel:
        """The model with the weights that stay in few bits, and a record of each product; never slower than it was."""
        bench = self.final.bench  # `as_run`: unless sessions copy them, weights in few bits run 100 times slower
        self.final = replace(self.final, bench=replace(bench, original=replace(bench.original, as_run=True)))
        self.products, self.tried.reasons = products_of(bench.fused, bench.original.folder)
        self.tried.shapes = {each.output: each.shape for each in self.products}
        if not self.scenes:
            return self._result(reason="the model does not run with made-up inputs: give --inputs F.npz")
        try:
            self._try()
            cases = self._cases() if weight_choice.undoing(self.tried.options())[0] else []
            choice, reason = self.tried.choose(partial(self._fault, cases=cases))
            return self._time(choice, cases) if choice else self._result(reason=reason)
        except NoyauError as error:
            return self._result(reason=str(error))

    def _try(self) -> None:
        """Time the variants of the products, and judge the winners; not of products with NaN or infinite weights."""
        tried, bench, names = self.tried, self.final.bench, [each.operand for each in self.products]
        runs = [*(scene.arrays for scene in self.scenes), *self.calibration]
        flows = [{**arrays, **self.capturing.capture(arrays, names)} for arrays in runs]
        for each in self.products:
            if not np.isfinite(each.weights()).all():
                tried.reasons[each.output] = "its weights have NaN or infinities"
            elif not all(each.operand in flow and flow[each.operand].ndim > 1 for flow in flows):
                tried.reasons[each.output] = "what it reads could not be captured, or is a vector"
        products = [each for each in self.products if each.output not in tried.reasons]
        variants = [each for each in VARIANTS if each.bits in weight_choice.WEIGHTS[self.wishes.weights]]
        places = [(scene.sizes, flow) for scene, flow in zip(self.scenes, flows, strict=False)]
        groups, real = equal_products(products, flows[: len(self.scenes)]), flows[len(self.scenes) :] or flows
        quick, total_bytes = replace(bench, budget_s=self.wishes.budget_s), sum(each.bytes for each in products)
        for number, group in enumerate(groups, 1):
            words = f"timing weights in few bits, {number} of {len(groups)}: {several(len(group), 'product')}"
            self.say(Step(words, number - 1, len(groups)))
            trials = time_variants(quick, group, variants, places, total_bytes, self.limit_s)
            for product in group:
                judge = partial(judge_variants, product, flows=real, like=bench.original.runnable)
                tried.add(product.output, trials, judge)

    def _cases(self) -> list[Arrays]:
        """Inputs for comparing outputs: the calibration, or all scenes plus random inputs for enough rows of logits."""
        original, cases = self.final.bench.original, [*self.calibration] or [scene.arrays for scene in self.scenes]
        session = original.session(original.before, threads=self.final.bench.threads)
        self.before = [run(session, each) for each in cases]
        same = [weight_choice.agreement([(each, each)]) for each in self.before]
        rows = [each.rows + each.rows_beyond for each in same]
        lacking = weight_choice.TOKENS - sum(rows)
        if self.feeds.made_up and not self.calibration and rows[0] and lacking > 0:
            sizes, seeds = dict(self.feeds.full.sizes), range(1, 1 + -(-lacking // rows[0]))
            missing, first = self.feeds.missing, self.wishes.seed
            more = [inputs_at(original.feed_model, sizes, missing, first + seed).arrays for seed in seeds]
            self.before += [run(session, each) for each in more]
            cases += more
        return cases

    def _fault(self, choice: Choice, cases: Sequence[Arrays]) -> str:
        """Why a choice exceeds the budget or does not run, or an empty text."""
        bench = self.final.bench
        if bench.deadline.passed:
            return bench.deadline.fault

        def runs() -> weight_choice.Runs:
            self.say(f"running the model with weights of {several(len(choice), 'product')} in few bits")
            model = with_variants(bench.fused, choice, bench.original.folder)
            session = bench.original.session(model, bench.library, threads=bench.threads)
            return ((before, run(session, each)) for before, each in zip(self.before, cases, strict=True))

        try:
            return self.tried.fault(choice, self.wishes.budget, runs)
        except NoyauError as error:
            return f"the model does not run so: {error}"

    def _time(self, choice: Choice, cases: Sequence[Arrays]) -> FinalModel:
        """The model with a choice; as long as that loses or exceeds the budget, with the half of it that gains most."""
        reason = ""
        while choice:
            self.say(f"timing the whole model with weights of {several(len(choice), 'product')} in few bits")
            bench = self.final.bench
            bench = replace(bench, fused=with_variants(bench.fused, choice, bench.original.folder))
            whole = time_whole(bench, self.scenes, self.limit_s)
            if not (reason := loss_of(whole) or self._fault(choice, cases)):
                return replace(self._result(choice), bench=bench, whole=whole)
            kept = dict([*choice.items()][: len(choice) // 2])  # a choice is sorted by gain
            self.tried.reasons |= {name: f"{variant}: {reason}" for name, variant in choice.items() if name not in kept}
            choice = kept
        return self._result(reason=reason)

    def _result(self, choice: Choice | None = None, reason: str = "") -> FinalModel:
        """The model as it was, with the record of all products for a choice."""
        wishes = self.wishes
        return replace(self.final, weights=self.tried.record(wishes.weights, wishes.budget, choice or {}, reason))


Flow = Mapping[str, np.ndarray]  # values of one run, by name
MOST_BYTES = 1 << 28  # the most weights of a model that is timed
FEW_ROWS = 32  # with more rows, weights are reused so often that their transfer from memory does not matter
JUDGED_ROWS = 64
_COLUMNS = 4096  # columns of a product in float64 at a time: float64 takes twice the memory


def equal_products(products: Sequence[Product], flows: Sequence[Flow]) -> list[list[Product]]:
    """The products in groups of equal time: same operator, bias, and shapes of weights and operands."""
    operands = {each.output: tuple(flow[each.operand].shape for flow in flows) for each in products}
    keys = ((each.node.op_type, each.shape, bool(each.bias), operands[each.output]) for each in products)
    return list(collect(zip(keys, products, strict=True)).values())


def time_variants(
    bench: OnnxBench,
    products: Sequence[Product],
    variants: Sequence[Variant],
    flows: Sequence[tuple[Mapping[str, int], Flow]],
    total_bytes: int,
    limit_s: float,
) -> list[Trial]:
    """Time variants of equal products at each binding, all products in one model; a variant that loses at a binding is
    not timed at the others. `total_bytes`: of the weights of all products; `limit_s` as in `OnnxBench.compare`."""
    scenes = [BenchmarkCase(sizes, {"x": flow[products[0].operand]}) for sizes, flow in flows]
    counts = [_copies(products, scene.arrays["x"], total_bytes) for scene in scenes]
    bench = replace(bench, library=None, whole=False, enough=DECIDED)
    trials = [Trial(each) for each in variants]
    for count in dict.fromkeys(counts):
        before = model_of(products[:count], scenes[0].arrays["x"].ndim, bench.original.runnable, brief=True)
        same = [scene for scene, its in zip(scenes, counts, strict=True) if its == count]
        for batch in filter(None, [same[:1], same[1:]] if same[0] is scenes[0] else [same]):
            trials = [_time(bench, before, -(-count // len(products)), each, batch, limit_s) for each in trials]
    return [replace(each, reason=each.reason or trial_loss(each.timings)) for each in trials]


def _time(
    bench: OnnxBench, before: onnx.ModelProto, times: int, trial: Trial, scenes: Sequence[BenchmarkCase], limit_s: float
) -> Trial:
    """A trial with the timings at further bindings, of a model of products repeated `times` times."""
    if trial.reason:
        return trial
    if bench.deadline.passed:
        return replace(trial, reason=bench.deadline.fault)
    try:
        outputs = [node.output[0] for node in before.graph.node]
        after = with_variants(before, dict.fromkeys(outputs, trial.variant), None)
        before, after = repeat_model(before, times), repeat_model(after, times)
        bench = replace(bench, original=replace(bench.original, model=before))  # a model without external data
        timings = [*filter(None, bench.compare(before, after, scenes, str(trial.variant), limit_s))]
    except NoyauError as error:
        return replace(trial, reason=f"{'is wrong' if isinstance(error, CheckError) else 'does not run'}: {error}")
    before_s = (each.hot.before_median_s / len(before.graph.output) for each in timings)
    trial = replace(trial, timings=(*trial.timings, *timings), before_s=(*trial.before_s, *before_s))
    loser = losing(trial.timings)
    return replace(trial, reason="" if loser is None else str(loser))


def _copies(products: Sequence[Product], operand: np.ndarray, total_bytes: int) -> int:
    """The number of products in a timed model: enough that weights are as cold as in the model itself, and as cold as
    after twice the last-level cache; two if cold weights do not matter."""
    if math.prod(operand.shape[:-1]) > FEW_ROWS:
        return 2
    return max(min(max(total_bytes, 2 * last_level_bytes()), MOST_BYTES) // products[0].bytes, 1)


def model_of(products: Sequence[Product], rank: int, like: onnx.ModelProto, *, brief: bool = False) -> onnx.ModelProto:
    """A model of some products of one operand `x` of rank `rank`, with biases of zeros. `brief`: only the first row of
    each result is an output, so that the rest stays as warm as in a model."""
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
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "products", *ends, tensors)
    opsets = [each for each in like.opset_import if each.domain in CORE_DOMAINS]
    return helper.make_model(graph, opset_imports=opsets, ir_version=like.ir_version)


def repeat_model(model: onnx.ModelProto, times: int) -> onnx.ModelProto:
    """The nodes of a model with input `x`, repeated `times` times, each time with tensors of their own."""
    result = deepcopy(model)
    for number in range(1, times):
        more = deepcopy(model.graph)
        for each in (*more.initializer, *more.node, *more.output):
            each.name += f"_{number}" if each.name else ""
        for node in more.node:
            node.input[:] = [name if name in ("", "x") else f"{name}_{number}" for name in node.input]
            node.output[:] = [f"{name}_{number}" for name in node.output]
        for part in ("initializer", "node", "output"):
            getattr(result.graph, part).extend(getattr(more, part))
    return result


def judge_variants(
    product: Product, variants: Sequence[Variant], flows: Sequence[Flow], like: onnx.ModelProto
) -> list[tuple[float, ...]]:
    """The errors of a product in onnxruntime, as in `Trial.errors`: in float32, then with each variant; on finite rows
    of its operand in the model, evenly spaced over all runs."""
    rows = np.concatenate([flow[product.operand].reshape(-1, product.shape[0]) for flow in flows])
    rows = rows[np.isfinite(rows).all(axis=1)]
    rows = rows[:: max(len(rows) // JUDGED_ROWS, 1)][:JUDGED_ROWS]
    weights, operands = product.weights(), [rows.copy() for _ in LARGE]
    for times, operand in zip(LARGE, operands, strict=True):
        operand[::2, np.abs(rows).max(axis=0, initial=0).argmax()] *= times
    parts = (weights[:, at : at + _COLUMNS].astype(np.float64) for at in range(0, weights.shape[1], _COLUMNS))
    exact = np.hstack([np.concatenate(operands).astype(np.float64) @ part for part in parts])
    largest = np.abs(exact).max(axis=1)

    def errors(model: onnx.ModelProto) -> tuple[float, ...]:
        session = open_session(model.SerializeToString(), threads=1)
        results = np.concatenate([run(session, {"x": each})["product_0"] for each in operands])
        apart = np.abs(results - exact).max(axis=1) / np.where(largest > 0, largest, np.inf)
        return tuple(float(each.max(initial=0)) for each in np.split(apart, len(LARGE)))

    plain = model_of([product], 2, like)
    return [errors(plain), *(errors(with_variants(plain, {"product_0": each}, None)) for each in variants)]
