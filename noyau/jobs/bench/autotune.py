"""`noyau.tune`: autotuning; the fastest kernel of an op and its best constants are measured and recorded."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from noyau.errors import InputError, SignatureError
from noyau.jobs.bench.inputs import usual_numbers
from noyau.jobs.bench.record import BenchPoint, BenchRecord, is_able, winner_of
from noyau.jobs.bench.run import Numbers, combinations, device_of, time_target
from noyau.jobs.bench.tasks import BenchOptions
from noyau.jobs.bench.track import Say
from noyau.jobs.check.run import check
from noyau.kernels.programs.generate import CPU, specialization_of
from noyau.kernels.trust import ineligible
from noyau.kernels.user_kernel import UserKernel, choose_constants
from noyau.ops.dispatch.choice import Winner, record
from noyau.ops.op import Op
from noyau.signatures.instances import Bound, bind
from noyau.text import TextRecord, as_json
from noyau.timing.verdict import spell_s

_MOST_VARIANTS = 256
_TRIAL_S = 0.05  # of timing for each choice in a search
_CHECK_S = 5.0
Choice = tuple[int, ...]  # an index into each list
_FEW = 16  # up to so many choices, all are tried
_SHARE = 0.25  # of more choices, the share that is tried
_CELLS = (1 << 10, 1 << 14, 1 << 18, 1 << 22)  # of the largest input, if no sizes are given


def with_variants(
    op: Op[..., Any], bound: Bound, say: Say, device: str, time_of: Callable[[UserKernel], float]
) -> tuple[Op[..., Any], dict[str, str]]:
    """The op with its eligible attached kernels, as one variant for each choice of constants, or of many choices the
    one found by a search that minimises `time_of`; and the reasons why other kernels are left out."""
    reference, kernels, left_out = op.description.reference, [], {}

    def is_right(variant: UserKernel) -> bool:
        say(f"checking {variant.name}")
        if variant.usage.trust or check(Op(replace(op.description, kernels=(variant,))), budget_s=_CHECK_S).ok:
            return True
        left_out[variant.name] = "noyau.check finds it wrong"
        return False

    def cost(by_choice: Mapping[Choice, UserKernel], choice: Choice) -> float:
        return time_of(by_choice[choice]) if is_right(by_choice[choice]) else math.inf

    for kernel in op.kernels.values():
        reason = ineligible(kernel, reference, bound.instance, reference.constants, device)
        every = variants(kernel)
        if reason:
            left_out[kernel.name] = reason
        elif len(every) > _FEW:
            extents = [len(value) for value in lists_of(kernel).values()]
            by_choice = dict(zip(itertools.product(*map(range, extents)), every, strict=True))
            kernels.append(by_choice[search(extents, partial(cost, by_choice), int(_SHARE * len(every)))])
        else:
            kernels += [each for each in every if each is kernel or is_right(each)]
    return Op(replace(op.description, kernels=tuple(kernels))), left_out


def lists_of(kernel: UserKernel) -> dict[str, list[Any]]:
    """The constants of a kernel that are lists of values to choose from."""
    return {name: value for name, value in kernel.usage.constants.items() if isinstance(value, list)}


def variants(kernel: UserKernel) -> list[UserKernel]:
    """A variant of a kernel, named by its constants, for each choice from its lists; the kernel itself without any."""
    lists = lists_of(kernel)
    choices = list(itertools.product(*lists.values()))
    if len(choices) > _MOST_VARIANTS:
        raise InputError(f"{kernel.title} has {len(choices)} choices of constants, and {_MOST_VARIANTS} are the most")
    every = []
    for chosen in (tuple(zip(lists, choice, strict=True)) for choice in choices):
        named = ", ".join(f"{name}={value}" for name, value in chosen)
        every.append(replace(choose_constants(kernel, chosen), name=f"{kernel.name} ({named})"))
    return every if lists else [kernel]


def search(extents: Sequence[int], cost: Callable[[Choice], float], most: int) -> Choice:
    """The cheapest choice found by pattern search in `most` trials: from the middle of each list it moves along one
    list at a time while that is cheaper, halving the step; then it restarts at the choice farthest from all tried ones.
    Neighbours in a list are expected to have similar costs, as sizes do."""
    costs: dict[Choice, float] = {}
    every = list(itertools.product(*map(range, extents)))

    def tried(choice: Choice) -> float:
        if choice not in costs and len(costs) < most:
            costs[choice] = cost(choice)
        return costs.get(choice, math.inf)

    start = tuple(extent // 2 for extent in extents)
    while len(costs) < min(most, len(every)):
        best, step = start, max(extents) // 2
        tried(best)
        while step and len(costs) < most:
            moves = [
                (*best[:axis], place, *best[axis + 1 :])
                for axis, extent in enumerate(extents)
                for place in (best[axis] - step, best[axis] + step)
                if 0 <= place < extent
            ]
            nearest = min([best, *moves], key=tried)
            best, step = (nearest, step) if tried(nearest) < tried(best) else (best, step // 2)
        left = [each for each in every if each not in costs]
        start = max(left, key=lambda each: min(math.dist(each, other) for other in costs), default=start)
    return min(costs, key=lambda each: costs[each])


@dataclass(frozen=True, slots=True, repr=False)
class TuneRecord(TextRecord):
    """The bench and the winner at each set of sizes; prints itself. `left_out`: why a kernel was not timed."""

    benched: tuple[BenchRecord, ...]
    winners: tuple[Winner, ...]
    left_out: Mapping[str, str]

    @property
    def ok(self) -> bool:
        """Whether every candidate that ran is right."""
        return all(each.ok for each in self.benched)

    def raise_if_bad(self) -> None:
        """CheckError with the first candidate that is wrong, unless `ok`."""
        for each in self.benched:
            each.raise_if_bad()

    def to_json(self) -> dict[str, Any]:
        return {name: as_json(getattr(self, name)) for name in ("winners", "benched", "left_out")}

    def __str__(self) -> str:
        won = ((f"{each.cells} cells: {each.title}", spell_s(each.median_s)) for each in self.winners)
        lines = [f"from now on at {what}, {time} a call" for what, time in won]
        left = [f"{name} was not timed: {reason}" for name, reason in self.left_out.items()]
        return "\n".join([*(f"{each}\n" for each in self.benched), *lines, *left])


def tune(
    op: Op[..., Any],
    *args: Any,
    sizes: Numbers | None = None,
    budget_s: float = 1.0,
    seed: int = 0,
    say: Say | None = None,
    device: str = "",
) -> TuneRecord:
    """Time the reference of an op and its eligible kernels, generated and attached, and record the fastest for calls of
    this kind: these dtypes, ranks, constants and layouts, by the number of cells of the largest array.

    Times on the given inputs; else on synthetic ones at each combination of `sizes`; else at four sizes, from a
    thousand to four million cells. All combinations of constants that are lists are tried, after a check of each such
    variant; of more than 16 a search tries a quarter, which expects neighbours in a list to be similar. A kernel
    replaces the default one only if it is faster. Tensors on a GPU are timed there, as are synthetic inputs with
    `device="cuda"`; the generated kernel is then tried with several tile sizes and numbers of warps.
    SignatureError for an op without a signature, or unfit inputs; InputError for more than 256 variants."""
    if not isinstance(op, Op):
        raise SignatureError(f"noyau.tune takes an op, no {type(op).__name__}; put @noyau.op on a function")
    op.require_signature()
    report: Say = say or (lambda step: None)
    place = device_of(args, device)
    if place:
        from noyau.hosts.torch.cuda.device import require_free
        from noyau.jobs.bench.torch.run import on_host

        require_free(op.name)
    records, winners, left_out = list[BenchRecord](), list[Winner](), dict[str, str]()
    for arguments, numbers in _wishes(op, args, sizes):
        values = [on_host(each) if place else each for each in arguments] if arguments else op.make(seed, **numbers)
        bound = bind(op.require_signature(), values, op.known_sizes(op.description.reference.constants), op.name)
        wishes = BenchOptions(arguments or None, [numbers], budget_s, seed=seed, searches=True)
        form, reasons = with_variants(op, bound, report, place or CPU, partial(_time_of, op, place, wishes, report))
        left_out |= reasons
        records.append(time_target(form, place, wishes, report, record=bool(place)))
        winners += _winners(op, form, records[-1].at[0], bound, place)
    op.calls.forget()
    return TuneRecord(tuple(records), tuple(winners), left_out)


def _time_of(op: Op[..., Any], place: str, options: BenchOptions, say: Say, variant: UserKernel) -> float:
    """A rough time of a call of one kernel; infinite if it does not run."""
    one: Op[..., Any] = Op(replace(op.description, kernels=(variant,)))
    options = replace(options, budget_s=_TRIAL_S, searches=False)
    return time_target(one, place, options, say, record=False).at[0].time_s(variant.name) or math.inf


def _winners(op: Op[..., Any], form: Op[..., Any], at: BenchPoint, bound: Bound, place: str) -> Iterator[Winner]:
    """Record and yield the winner at one set of sizes, if there is one; on a GPU it is recorded already."""
    if not place:
        request = specialization_of(op.require_signature(), bound, op.description.reference.constants)
        winner = winner_of(form, at, request, bound.largest)
        record(op.description, request, [winner])
        yield winner
    elif at.request is not None and any(is_able(row.name, form, at.request) for row in at.ranked):
        yield winner_of(form, at, at.request, at.cells)


def _wishes(op: Op[..., Any], args: Sequence[Any], sizes: Numbers | None) -> Iterator[tuple[Any, dict[str, int]]]:
    """Pairs (inputs, sizes), one of them empty, for each measurement."""
    if args and sizes:
        raise InputError(f"{op.name}: both inputs and sizes are given; the sizes are those of the inputs")
    if args:
        yield op.arguments(args, {})[0], {}
    elif sizes or op.inputs is not None:
        yield from (((), numbers) for numbers in combinations(sizes or {}))
    else:
        constants = op.known_sizes(op.description.reference.constants)
        yield from (((), usual_numbers(op.require_signature(), constants, {}, cells)) for cells in _CELLS)
