"""Weights in few bits: each product tried, the fastest chosen, and the whole model confirmed before it is taken."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from noyau.dtypes import DType
from noyau.errors import CheckError, NoyauError
from noyau.hosts.onnxruntime.activations import ActivationCapture
from noyau.hosts.onnxruntime.function_bodies import CORE_DOMAINS
from noyau.hosts.onnxruntime.inputs import ModelInputs, inputs_at
from noyau.hosts.onnxruntime.products import Product, products_of
from noyau.hosts.onnxruntime.runs import run
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.hosts.onnxruntime.weight_variants import VARIANTS, Variant, with_variants
from noyau.jobs.optimize.candidate import BindingTiming, decisive, losing, overall
from noyau.jobs.optimize.onnx import weight_choice
from noyau.jobs.optimize.onnx.kernel_timing import Arrays, BenchmarkCase, OnnxBench
from noyau.jobs.optimize.onnx.options import OptimizeOptions
from noyau.jobs.optimize.onnx.weight_choice import Agreement, Choice, Option
from noyau.jobs.optimize.onnx.whole_model import FinalModel, distance, loss_of, time_whole
from noyau.jobs.optimize.pipeline import Say
from noyau.jobs.optimize.record import ProductRecord, VariantRecord, WeightRecord, binding
from noyau.text import several
from noyau.timing.conditions import last_level_bytes
from noyau.timing.verdict import Verdict


@dataclass(slots=True)
class WeightStage:
    """The stage of a model whose kernels are settled. `scenes`: its inputs at each binding; `calibration`: others to
    take for errors and tokens; `trials` and the errors of float32 of each product; `reasons`: why a product is not in
    its fastest form."""

    final: FinalModel
    scenes: Sequence[BenchmarkCase]
    wishes: OptimizeOptions
    capturing: ActivationCapture
    feeds: ModelInputs
    limit_s: float
    say: Say
    calibration: Sequence[Arrays] = ()
    products: list[Product] = field(default_factory=list)
    trials: dict[str, list[Trial]] = field(default_factory=dict)
    float32: dict[str, tuple[float, ...]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    known: dict[Any, Agreement] = field(default_factory=dict)
    before: list[Arrays] = field(default_factory=list)  # outputs in float32

    def run(self) -> FinalModel:
        """The model with the weights that stay in few bits, and what came of each product; never slower than it was."""
        bench = self.final.bench  # without copies of the weights, those in few bits run a hundred times slower
        self.final = replace(self.final, bench=replace(bench, original=replace(bench.original, as_run=True)))
        self.products, self.reasons = products_of(bench.fused, bench.original.folder)
        if not self.scenes:
            return self._result(reason="the model does not run with made-up inputs: give --inputs F.npz")
        try:
            choices = weight_choice.undoing(self._options(self._tried()))
            if not choices[0]:
                return self._result(reason="no product is faster so" if self.products else "")
            cases = self._cases()
            choice, fault = weight_choice.choose(choices, lambda choice: self._fault(choice, cases))
            self.reasons |= {name: f"{v}: {fault}" for name, v in choices[0].items() if choice.get(name) != v}
            return self._timed(choice, cases) if choice else self._result(reason=f"none keeps the budget: {fault}")
        except NoyauError as error:
            return self._result(reason=str(error))

    def _tried(self) -> list[Product]:
        """The products whose variants were timed, and judged where they win: not those that have no numbers."""
        bench, names = self.final.bench, [each.operand for each in self.products]
        runs = [*(scene.arrays for scene in self.scenes), *self.calibration]
        flows = [{**arrays, **self.capturing.capture(arrays, names)} for arrays in runs]
        for each in self.products:
            if not np.isfinite(each.weights()).all():
                self.reasons[each.output] = "its weights have NaN or infinities"
            elif not all(each.operand in flow and flow[each.operand].ndim > 1 for flow in flows):
                self.reasons[each.output] = "what it reads could not be captured, or is a vector"
        products = [each for each in self.products if each.output not in self.reasons]
        variants = [each for each in VARIANTS if each.bits in weight_choice.WEIGHTS[self.wishes.weights]]
        places = [(scene.sizes, flow) for scene, flow in zip(self.scenes, flows, strict=False)]
        groups = equal_products(products, flows[: len(self.scenes)])
        for number, group in enumerate(groups, 1):
            self.say(f"timing weights in few bits, {number} of {len(groups)}: {several(len(group), 'product')}")
            quick = replace(bench, budget_s=self.wishes.budget_s)
            total_bytes = sum(each.bytes for each in products)
            trials = time_variants(quick, group, variants, places, total_bytes, self.limit_s)
            right = [each.variant for each in trials if not each.reason]
            for product in group:
                real = flows[len(self.scenes) :] or flows
                self.float32[product.output], *errors = judge_variants(product, right, real, bench.original.runnable)
                known = dict(zip(right, errors, strict=True))
                self.trials[product.output] = [replace(each, errors=known.get(each.variant, ())) for each in trials]
        return products

    def _options(self, products: Sequence[Product]) -> dict[str, list[Option]]:
        """The variants of each product that may be chosen, those that gain most first. A gain is the share of the time
        of all products at a binding, so that none of them counts more than another."""
        totals, options = dict[str, float](), dict[str, list[Option]]()
        for product in products:
            longest = max(self.trials[product.output], key=lambda each: len(each.timings))
            for timing, before_s in zip(longest.timings, longest.before_s, strict=True):
                totals[str(timing.sizes)] = totals.get(str(timing.sizes), 0.0) + before_s
        for name, trials in self.trials.items():
            right = [each for each in trials if not each.reason and np.isfinite(each.errors).all()]
            options[name] = [Option(each.variant, _gain(each, totals), each.errors[0]) for each in right]
        return dict(sorted(options.items(), key=lambda item: -max((each.gain for each in item[1]), default=0.0)))

    def _cases(self) -> list[Arrays]:
        """The inputs that the outputs are held against: the calibration, or all scenes, and more made-up ones
        until there are enough rows of logits."""
        original, cases = self.final.bench.original, [*self.calibration] or [scene.arrays for scene in self.scenes]
        session = original.session(original.before, threads=self.final.bench.threads)
        self.before = [run(session, each) for each in cases]
        same = [weight_choice.agreement([(each, each)], distance) for each in self.before]
        rows = [each.rows + each.rows_beyond for each in same]
        lacking = weight_choice.TOKENS - sum(rows)
        if self.feeds.made_up and not self.calibration and rows[0] and lacking > 0:
            sizes, seeds = dict(self.feeds.full.sizes), range(1, 1 + -(-lacking // rows[0]))
            missing, first = self.feeds.missing, self.wishes.seed
            more = [inputs_at(original.called, sizes, missing, first + seed).arrays for seed in seeds]
            self.before += [run(session, each) for each in more]
            cases += more
        return cases

    def _fault(self, choice: Choice, cases: Sequence[Arrays]) -> str:
        """Why a choice is none that the budget allows, or nothing."""
        bench, key = self.final.bench, _key(choice)
        if bench.deadline.passed:
            return bench.deadline.fault
        if choice and key not in self.known:
            self.say(f"running the model with weights of {several(len(choice), 'product')} in few bits")
            try:
                model = with_variants(bench.fused, choice, bench.original.folder)
                session = bench.original.session(model, bench.library, threads=bench.threads)
                pairs = ((before, run(session, each)) for before, each in zip(self.before, cases, strict=True))
                self.known[key] = weight_choice.agreement(pairs, distance)
            except NoyauError as error:
                return f"the model does not run so: {error}"
        return self.known[key].fault(weight_choice.budget_of(self.wishes.budget)) if choice else ""

    def _timed(self, choice: Choice, cases: Sequence[Arrays]) -> FinalModel:
        """The model with a choice, or with the half of it that gains most, again and again, until it is not slower."""
        reason = ""
        while choice:
            self.say(f"timing the whole model with weights of {several(len(choice), 'product')} in few bits")
            bench = self.final.bench
            bench = replace(bench, fused=with_variants(bench.fused, choice, bench.original.folder))
            whole = time_whole(bench, self.scenes, self.limit_s)
            reason = loss_of(whole) or self._fault(choice, cases)
            if not reason:
                return replace(self._result(choice), bench=bench, whole=whole)
            kept = dict([*choice.items()][: len(choice) // 2])  # they are in the order of their gains
            self.reasons |= {name: f"{variant}: {reason}" for name, variant in choice.items() if name not in kept}
            choice = kept
        return self._result(reason=reason)

    def _result(self, choice: Choice | None = None, reason: str = "") -> FinalModel:
        """The model as it was, with the record of all products for a choice."""
        choice, records, shapes = (
            choice or {},
            list[ProductRecord](),
            {each.output: each.shape for each in self.products},
        )
        for name in dict.fromkeys([*shapes, *self.reasons]):
            trials, variant = self.trials.get(name, []), str(choice.get(name, ""))
            why = self.reasons.get(name, "") or ("" if variant else _nearest(trials))
            float32, variants = self.float32.get(name, ()), tuple(map(_record, trials))
            records.append(ProductRecord(name, shapes.get(name, ()), variant, why, float32, variants))
        apart = self.known.get(_key(choice), Agreement())
        budget, margin = str(self.wishes.budget or weight_choice.SAME_TOKENS), apart.margin if apart.rows else None
        numbers = apart.error, apart.rows, apart.flips, margin, apart.rows_beyond, apart.flips_beyond
        return replace(self.final, weights=WeightRecord(self.wishes.weights, budget, tuple(records), *numbers, reason))


def _key(choice: Choice) -> tuple[tuple[str, Variant], ...]:
    """A choice as a key, in whatever order it was made."""
    return tuple(sorted(choice.items(), key=str))


def _record(trial: Trial) -> VariantRecord:
    """The record of a variant, in seconds of one product."""
    pairs = zip(trial.timings, trial.before_s, strict=True)
    at = (replace(binding(each), before_s=one, after_s=one / each.comparison.speedup) for each, one in pairs)
    return VariantRecord(str(trial.variant), trial.errors, tuple(at), trial.reason)


def _nearest(trials: Sequence[Trial]) -> str:
    """Why float32 is as good, by the variant that came nearest."""
    speeds = {min((one.comparison.speedup for one in each.timings), default=0.0): each for each in trials}
    return f"{speeds[max(speeds)].variant}: {speeds[max(speeds)].reason}" if speeds else ""


def _gain(trial: Trial, totals: Mapping[str, float]) -> float:
    """The share of the time of all products that a variant saves in one, the mean over the bindings."""
    pairs = zip(trial.timings, trial.before_s, strict=True)
    return float(np.mean([one * (1 - 1 / at.comparison.speedup) / totals[str(at.sizes)] for at, one in pairs]))


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
    return [replace(each, reason=each.reason or trial_loss(each.timings)) for each in trials]


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


def trial_loss(timings: Sequence[BindingTiming]) -> str:
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
