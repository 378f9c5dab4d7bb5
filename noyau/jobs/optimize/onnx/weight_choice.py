"""Choices of weights in few bits: the fastest, undone from the worst until the outputs keep a budget."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from noyau.errors import InputError
from noyau.hosts.onnxruntime.weight_variants import Variant
from noyau.timing.output_checks import is_float

SAME_TOKENS = "same-tokens"
WEIGHTS = {"none": (), "auto": (4, 7, 8), "int8": (7, 8), "int4": (4,)}  # and the bits of each
TOKENS = 512  # rows of logits that a budget of tokens is held on: of enough, any change flips one
MOST_RETURNS = 8  # products that are tried once more after all
Outputs = Mapping[str, np.ndarray]
Choice = Mapping[str, Variant]  # of each product that is not float32, by what it makes


def budget_of(text: str | float | None) -> float | None:
    """The largest error of the outputs that a budget allows; None for the same tokens. InputError for what is none."""
    try:
        budget = None if text in (None, SAME_TOKENS) else float(text or "")
    except (TypeError, ValueError):
        budget = 0.0
    if budget is not None and not 0 < budget < np.inf:
        message = f"the budget {text!r} is neither {SAME_TOKENS} nor a number above 0"
        raise InputError(f"{message}: --budget 1e-2 lets the outputs move by so much of the largest")
    return budget


@dataclass(frozen=True, slots=True)
class Agreement:
    """Outputs of a model in few bits beside those in float32. `error`: the largest distance over the largest output, or
    inf where what is no float differs. `flips`: of so many `rows` of logits (floats of two or three axes, the last of
    two or more) those whose largest cell is another one, and integers that differ. `margin`: of the other rows the
    least distance of the two largest cells, over the largest output. The rows are 512, evenly from all; `rows_beyond`
    are the others, which no choice rests on, and `flips_beyond` flip there."""

    error: float = 0.0
    rows: int = 0
    flips: int = 0
    margin: float = np.inf
    rows_beyond: int = 0
    flips_beyond: int = 0

    def fault(self, budget: float | None) -> str:
        """Why a budget does not hold, or nothing."""
        if budget is not None:
            return "" if self.error <= budget else f"the outputs move by {self.error:.2g} of the largest"
        if not self.rows:
            return f"no output is logits or tokens: give --budget 1e-2 in place of {SAME_TOKENS}"
        if self.flips:
            return f"{self.flips} of {self.rows} tokens flip"
        return "an output is no number where it was one" if self.error == np.inf else ""


def agreement(
    pairs: Iterable[tuple[Outputs, Outputs]], distance: Callable[[np.ndarray, np.ndarray], float]
) -> Agreement:
    """The agreement of runs, each with the outputs in float32 and in few bits."""
    error, flips, margins = 0.0, [np.zeros(0, bool)], [np.zeros(0)]
    for before, after in pairs:
        for name, one in before.items():
            other = after[name]
            error = max(error, distance(one, other))
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
    return Agreement(error, int(held.sum()), int(is_other[held].sum()), least, *beyond)


@dataclass(frozen=True, slots=True)
class Option:
    """Form of a product: `gain` is the share of the time of all products that it saves, `error` what it adds."""

    variant: Variant | None
    gain: float = 0.0
    error: float = 0.0


def undoing(options: Mapping[str, Sequence[Option]]) -> list[Choice]:
    """Choices from the fastest to float32 everywhere: each undoes, in one product, what costs most error per second."""
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
    """The options that none beats in both, the fastest first; the last is float32."""
    front: list[Option] = []
    gains = [each for each in options if each.gain > 0]
    for each in [*sorted(gains, key=lambda each: (-each.gain, each.error)), Option(None)]:
        if not front or each.variant is None or each.error < front[-1].error:
            front.append(each)
    return front


def _cost(front: Sequence[Option], place: int) -> float:
    """The error that is left out by an undoing, over what it loses; less than 0, so that the most comes first."""
    before, after = front[place], front[place + 1]
    return -(before.error - after.error) / max(before.gain - after.gain, 1e-12)


def choose(choices: Sequence[Choice], fault_of: Callable[[Choice], str]) -> tuple[Choice, str]:
    """The first of the choices with which nothing is at fault, by halves, the last of which has none; then what was
    undone is tried once more, product by product, the fastest first. And what was at fault with the last one that was
    not taken."""
    fault = fault_of(choices[0]) if len(choices) > 1 else ""
    if not fault:
        return choices[0], ""
    low, high = 0, len(choices) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if worse := fault_of(choices[middle]):
            low, fault = middle, worse
        else:
            high = middle
    choice = choices[high]
    undone = [name for name in choices[0] if choice.get(name) != choices[0][name]]
    for name in undone[:MOST_RETURNS]:
        larger = {**choice, name: choices[0][name]}
        if worse := fault_of(larger):
            fault = worse
        else:
            choice = {each: larger[each] for each in choices[0] if each in larger}
    return choice, fault
