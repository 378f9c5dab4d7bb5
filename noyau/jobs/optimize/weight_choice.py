"""Choices of weights in few bits: the fastest first, then products undone, the costliest first, until the outputs are
within a budget. One search for models in onnxruntime and modules of torch: a variant is any form of weights."""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from noyau.errors import InputError
from noyau.jobs.optimize.pipeline import BindingTiming, decisive, losing, overall
from noyau.jobs.optimize.record import ProductRecord, VariantRecord, WeightRecord, binding
from noyau.timing.sides import is_float
from noyau.timing.verdict import Verdict

SAME_TOKENS = "same-tokens"
WEIGHTS = {"none": (), "auto": (4, 7, 8), "int8": (7, 8), "int4": (4,)}  # and the bits of each
TOKENS = 512  # rows of logits that the budget same-tokens looks at: with enough rows, any change flips one
MOST_RETURNS = 8  # the most undone products that are tried once more
LARGE = (1, 30, 1000)  # factors of one channel, in every second row, of the activations that judge a product
Outputs = Mapping[str, np.ndarray]
Runs = Iterable[tuple[Outputs, Outputs]]  # outputs as they were, and with weights in few bits
Choice = Mapping[str, Any]  # the variant of each changed product, by the name of its output
Errors = tuple[float, ...]


def budget_of(text: str | float | None) -> float | None:
    """The largest error of the outputs that a budget allows; None for the same tokens. InputError if it is invalid."""
    try:
        budget = None if text in (None, SAME_TOKENS) else float(text or "")
    except (TypeError, ValueError):
        budget = 0.0
    if budget is not None and not 0 < budget < np.inf:
        message = f"the budget {text!r} is neither {SAME_TOKENS} nor a number above 0"
        raise InputError(f"{message}: --budget 1e-2 lets the outputs move by so much of the largest")
    return budget


def require_wishes(weights: str, budget: str | float | None, calibration: object, option: str) -> None:
    """InputError for invalid weights, an invalid budget, or a budget or calibration without weights (`option`)."""
    if weights not in WEIGHTS:
        raise InputError(f"weights={weights!r} is none of {', '.join(WEIGHTS)}")
    if weights == "none" and (budget is not None or calibration is not None):
        raise InputError(f"a budget and a calibration are for weights in few bits: give {option} too")
    budget_of(budget)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Outputs of a model in few bits against those in float32. `error`: the largest distance over the largest output,
    or inf if anything but floats differs or no cell is finite. `rows`: rows of logits (floats of two or three axes, the
    last of two or more) and single integers, 512 at most, evenly spaced over all. `flips`: rows whose largest cell is
    another, and integers that differ. `margin`: in the other rows, the least distance of the two largest cells, over
    the largest output. `rows_beyond` are the rest, which no choice rests on; of them `flips_beyond` flip."""

    error: float = 0.0
    rows: int = 0
    flips: int = 0
    margin: float = np.inf
    rows_beyond: int = 0
    flips_beyond: int = 0

    def fault(self, budget: float | None) -> str:
        """Why the outputs exceed a budget, or an empty text."""
        odd = "an output is no number where it was one, or none is a number" if self.error == np.inf else ""
        if budget is not None:
            return odd or ("" if self.error <= budget else f"the outputs move by {self.error:.2g} of the largest")
        if not self.rows:
            return f"no output is logits or tokens: give --budget 1e-2 in place of {SAME_TOKENS}"
        if self.flips:
            return f"{self.flips} of {self.rows} tokens flip"
        return odd


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """The largest distance of two outputs over the largest cell; inf if non-floats, NaNs or infinities differ."""
    if not is_float(one.dtype) or one.shape != other.shape:
        return 0.0 if np.array_equal(one, other) else np.inf
    one, other = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(one)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return np.inf
    largest = np.abs(one[finite]).max(initial=0.0) or 1.0
    apart = float(np.abs(one[finite] - other[finite]).max(initial=0.0) / largest)
    return np.inf if np.isnan(apart) else apart  # comparisons with NaN are False, so it would exceed no bound


def agreement(pairs: Runs) -> Agreement:
    """The agreement over several runs; each run gives the outputs in float32 and in few bits."""
    error, flips, margins, are_finite = 0.0, [np.zeros(0, bool)], [np.zeros(0)], list[bool]()
    for before, after in pairs:
        for name, one in before.items():
            other = after[name]
            error = max(error, distance(one, other))
            are_finite += [not is_float(one.dtype) or bool(np.isfinite(one).any())] * bool(one.size)
            is_logits = is_float(one.dtype) and one.ndim in (2, 3) and one.shape[-1] > 1
            if is_logits and one.shape == other.shape and one.size:
                wide = one.astype(np.float64).reshape(-1, one.shape[-1])
                flips.append(wide.argmax(axis=1) != other.astype(np.float64).reshape(wide.shape).argmax(axis=1))
                second, first = np.partition(wide, -2, axis=1)[:, -2:].T
                margins.append((first - second) / (np.abs(wide).max() or 1.0))
            elif one.dtype.kind in "iu":
                flips.append((one != other).ravel() if one.shape == other.shape else np.ones(one.size, bool))
                margins.append(np.full(one.size, np.inf))
    is_other, margin = np.concatenate(flips), np.concatenate(margins)
    held = np.zeros(len(is_other), bool)
    held[np.linspace(0, len(held) - 1, min(len(held), TOKENS)).round().astype(int)] = True
    least = float(margin[held & ~is_other].min(initial=np.inf))
    beyond = int((~held).sum()), int(is_other[~held].sum())
    error = np.inf if are_finite and not any(are_finite) else error  # without finite cells no distance is known
    return Agreement(error, int(held.sum()), int(is_other[held].sum()), least, *beyond)


@dataclass(frozen=True, slots=True)
class Option:
    """A variant of a product: `gain` is the share of the time of all products that it saves, `error` its error."""

    variant: Any
    gain: float = 0.0
    error: float = 0.0


def undoing(options: Mapping[str, Sequence[Option]]) -> list[Choice]:
    """Choices from the fastest to float32 everywhere: each undoes, in one product, the most error per loss of gain."""
    fronts = {name: _front(each) for name, each in options.items()}
    choice = {name: front[0].variant for name, front in fronts.items()}
    choices, moves = [choice], [(_cost(front, 0), name, 0) for name, front in fronts.items() if len(front) > 1]
    heapq.heapify(moves)
    while moves:
        _, name, place = heapq.heappop(moves)
        choice = {**choice, name: fronts[name][place + 1].variant}
        choices.append(choice)
        if place + 2 < len(fronts[name]):
            heapq.heappush(moves, (_cost(fronts[name], place + 1), name, place + 1))
    return [{name: variant for name, variant in each.items() if variant is not None} for each in choices]


def _front(options: Sequence[Option]) -> list[Option]:
    """The Pareto front of gain and error, the fastest first; the last is float32."""
    front: list[Option] = []
    gains = [each for each in options if each.gain > 0]
    for each in [*sorted(gains, key=lambda each: (-each.gain, each.error)), Option(None)]:
        if not front or each.variant is None or each.error < front[-1].error:
            front.append(each)
    return front


def _cost(front: Sequence[Option], place: int) -> float:
    """Minus the error that undoing `place` removes per gain that it loses: a heap then yields the largest first."""
    before, after = front[place], front[place + 1]
    return -(before.error - after.error) / max(before.gain - after.gain, 1e-12)


def choose(choices: Sequence[Choice], fault_of: Callable[[Choice], str]) -> tuple[Choice, dict[str, str]]:
    """The first choice without a fault, by bisection; the last has none. Then the undone products are tried again one
    by one, the fastest first. Also the faults of the products that stay undone: each its own, or, beyond MOST_RETURNS,
    the fault of the last choice that was rejected."""
    fault = fault_of(choices[0]) if len(choices) > 1 else ""
    if not fault:
        return choices[0], {}
    low, high = 0, len(choices) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if worse := fault_of(choices[middle]):
            low, fault = middle, worse
        else:
            high = middle
    choice = choices[high]
    faults = {name: fault for name in choices[0] if choice.get(name) != choices[0][name]}
    for name in list(faults)[:MOST_RETURNS]:
        larger = {**choice, name: choices[0][name]}
        faults[name] = fault_of(larger)
        if not faults[name]:
            del faults[name]
            choice = {each: larger[each] for each in choices[0] if each in larger}
    return choice, faults


@dataclass(frozen=True, slots=True)
class Trial:
    """A variant of the weights of a product, tried. `errors`: the largest error of a row over the largest value of the
    row, on activations and with a channel of every second row times 30 and times 1000; `before_s`: the seconds of the
    original product at each timing; `reason`: why it is out."""

    variant: Any
    timings: tuple[BindingTiming, ...] = ()
    before_s: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()
    reason: str = ""

    @property
    def record(self) -> VariantRecord:
        """The record of the variant, in seconds of one product."""
        pairs = zip(self.timings, self.before_s, strict=True)
        at = (replace(binding(each), before_s=one, after_s=one / each.comparison.speedup) for each, one in pairs)
        return VariantRecord(str(self.variant), self.errors, tuple(at), self.reason)

    @property
    def gains_s(self) -> list[float]:
        """The seconds that the variant saves in one product, at each binding."""
        pairs = zip(self.timings, self.before_s, strict=True)
        return [before_s * (1 - 1 / each.comparison.speedup) for each, before_s in pairs]


def trial_loss(timings: Sequence[BindingTiming]) -> str:
    """Why a variant cannot be chosen, or an empty text: it must be FASTER at a binding and SLOWER at none."""
    loser, decider = losing(timings), decisive(timings)
    is_faster = loser is None and overall(each.verdict for each in timings) is Verdict.FASTER
    return "" if is_faster else str(loser or decider or "not timed")


@dataclass(slots=True)
class ProductTrials:
    """The products of a model, by output: `shapes`, `trials`, the errors in float32 (`plain`), the `reasons` why one is
    not in its fastest form; and the agreements of the choices that were run (`known`), by `_key`."""

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    trials: dict[str, list[Trial]] = field(default_factory=dict)
    plain: dict[str, tuple[float, ...]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    known: dict[Any, Agreement] = field(default_factory=dict)

    def add(self, name: str, trials: Sequence[Trial], judge: Callable[[list[Any]], Iterable[Errors]]) -> None:
        """Add a product with its trials; `judge` returns its errors in float32, then with each of some variants."""
        right = [each.variant for each in trials if not each.reason]
        self.plain[name], *errors = judge(right)
        known = dict(zip(right, errors, strict=True))
        self.trials[name] = [replace(each, errors=known.get(each.variant, ())) for each in trials]

    def options(self) -> dict[str, list[Option]]:
        """The variants of each product that may be chosen, the products that gain most first. A gain is the mean over
        bindings of the share of all products' time, so that each binding counts the same."""
        totals, options = defaultdict[str, float](float), dict[str, list[Option]]()
        for trials in self.trials.values():
            longest = max(trials, key=lambda each: len(each.timings))
            for timing, before_s in zip(longest.timings, longest.before_s, strict=True):
                totals[str(timing.sizes)] += before_s
        for name, trials in self.trials.items():
            for each in trials:
                if not each.reason and np.isfinite(each.errors).all():
                    gain = float(np.mean(np.divide(each.gains_s, [totals[str(at.sizes)] for at in each.timings])))
                    options.setdefault(name, []).append(Option(each.variant, gain, each.errors[0]))
        return dict(sorted(options.items(), key=lambda item: -max(each.gain for each in item[1])))

    def choose(self, fault_of: Callable[[Choice], str]) -> tuple[Choice, str]:
        """The choice that is within the budget, and why a faster one is not, or why there is no choice. Notes the
        reasons of the products that were undone."""
        choices = undoing(self.options())
        if not choices[0]:
            return {}, "no product is faster so" if self.shapes else ""
        choice, faults = choose(choices, fault_of)
        self.reasons |= {name: f"{choices[0][name]}: {fault}" for name, fault in faults.items()}
        fault = next(iter(faults.values()), "")
        return choice, fault if choice else f"no choice could be kept: {fault}"

    def fault(self, choice: Choice, budget: str | float | None, run: Callable[[], Runs]) -> str:
        """Why a choice exceeds the budget, or an empty text; `run` yields pairs of outputs, before and with it."""
        if choice and (key := _key(choice)) not in self.known:
            self.known[key] = agreement(run())
        return self.known[key].fault(budget_of(budget)) if choice else ""

    def record(self, weights: str, budget: str | float | None, choice: Choice, reason: str) -> WeightRecord:
        """The record of all products for a choice; `reason`: why nothing is chosen."""
        names = tuple(dict.fromkeys([*self.shapes, *self.reasons]))
        records = tuple(self._product(name, str(choice.get(name, ""))) for name in names)
        apart = self.known.get(_key(choice), Agreement())
        numbers = asdict(apart) | {"margin": apart.margin if apart.rows else None}
        return WeightRecord(weights, str(budget or SAME_TOKENS), records, reason=reason, **numbers)

    def _product(self, name: str, variant: str) -> ProductRecord:
        trials = self.trials.get(name, [])
        reason = self.reasons.get(name, "") or ("" if variant else _nearest(trials))
        variants = tuple(each.record for each in trials)
        return ProductRecord(name, self.shapes.get(name, ()), variant, reason, self.plain.get(name, ()), variants)


def _key(choice: Choice) -> tuple[tuple[str, Any], ...]:
    """A choice as a cache key, whatever its order."""
    return tuple(sorted(choice.items(), key=str))


def _nearest(trials: Sequence[Trial]) -> str:
    """Why no variant of a product wins, by the variant that came nearest."""
    speeds = {min((one.comparison.speedup for one in each.timings), default=0.0): each for each in trials}
    return f"{speeds[max(speeds)].variant}: {speeds[max(speeds)].reason}" if speeds else ""


def together(records: Sequence[WeightRecord], loss: str) -> WeightRecord | None:
    """One record of several graphs, None if there is none; with a `loss` no product counts as changed."""
    if not records:
        return None
    products = [each for record in records for each in record.products]
    if loss:
        products = [replace(each, variant="", reason=loss if each.variant else each.reason) for each in products]
    counts = ("rows", "flips", "rows_beyond", "flips_beyond")
    totals = {name: sum(getattr(each, name) for each in records) for name in counts}
    margin = min((each.margin for each in records if each.margin is not None), default=None)
    reason = loss or next(filter(None, (each.reason for each in records)), "")
    error = max(each.error for each in records)
    return replace(records[0], products=tuple(products), error=error, margin=margin, reason=reason, **totals)
