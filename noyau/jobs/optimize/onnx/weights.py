"""Weights in few bits: each product tried, the fastest chosen, and the whole model confirmed before it is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from noyau.errors import NoyauError
from noyau.hosts.onnxruntime.activations import ActivationCapture
from noyau.hosts.onnxruntime.inputs import ModelInputs, inputs_at
from noyau.hosts.onnxruntime.products import Product, products_of
from noyau.hosts.onnxruntime.runs import run
from noyau.hosts.onnxruntime.weight_variants import VARIANTS, Variant, with_variants
from noyau.jobs.optimize.onnx import weight_choice
from noyau.jobs.optimize.onnx.kernel_timing import Arrays, BenchmarkCase
from noyau.jobs.optimize.onnx.options import OptimizeOptions
from noyau.jobs.optimize.onnx.weight_choice import Agreement, Choice, Option
from noyau.jobs.optimize.onnx.weight_trials import Trial, equal_products, judge_variants, time_variants
from noyau.jobs.optimize.onnx.whole_model import FinalModel, distance, loss_of, time_whole
from noyau.jobs.optimize.pipeline import Say
from noyau.jobs.optimize.record import ProductRecord, VariantRecord, WeightRecord, binding
from noyau.text import several


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
