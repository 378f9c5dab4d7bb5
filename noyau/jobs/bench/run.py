"""`noyau.bench`: candidates, sizes and devices are validated and timed; the result is a record of races."""

import itertools
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import SupportsIndex, TypeAlias

from noyau.errors import BuildError, InputError
from noyau.jobs.bench.inputs import as_arguments
from noyau.jobs.bench.record import BenchPoint, BenchRecord, record_winner
from noyau.jobs.bench.tasks import Arguments, BenchOptions, BenchTarget, Function, tasks_of
from noyau.jobs.bench.track import NumpyTrack, Say, name_of, pools, race
from noyau.jobs.command_line import Step, progress
from noyau.timing.machine import this_machine
from noyau.workers.resources import processors

Numbers: TypeAlias = Mapping[str, int | Sequence[int]]
MOST_SIZES = 64


def bench(
    what: BenchTarget,
    args: Arguments | None = None,
    *,
    peers: Mapping[str, Function] | None = None,
    sizes: Numbers | None = None,
    budget_s: float = 1.0,
    cold: bool | None = None,
    flops: float | None = None,
    seed: int = 0,
    say: Say | None = None,
    record: bool = True,
    device: str = "",
) -> BenchRecord:
    """Time several implementations of one computation against each other, in rounds, and against the floor: the time in
    which this machine copies or reads the bytes that must move.

    `what`: an op, whose reference, attached kernels and generated kernels are timed, and `peers` besides; or plain
    functions by name, the first of which is the baseline and the truth of the others. `args`: the inputs, or a function
    of `rng` and sizes that makes them (candidates that cache results are then detected); an op's are made from its
    signature by default, with `sizes`. Several numbers of sizes are combined, each with each. A peer whose name begins
    with `torch` gets tensors. `budget_s`: seconds of timing at each set of sizes, which slow candidates exceed, since
    six calls of each are timed. `cold`: time also on inputs in no cache (default: if it may differ). `flops`: of a call
    of plain functions. `say`: receives a line for each step (default: stderr, if it is a terminal). `record`: later
    similar calls of the op run the eligible kernel that was certainly the fastest. `device`: "cuda" or "cuda:1", to
    which inputs are copied; tensors on a GPU are timed there anyway, and peers get tensors there.

    Each candidate is verified on its first call, and on random timed runs; a wrong one is reported and not ranked.
    InputError where inputs do not fit, or there is nothing to time; SignatureError as by a call."""
    numbers, place = _requests(sizes, budget_s, peers), device_of(args := as_arguments(args), device)
    wishes = BenchOptions(args, numbers, budget_s, cold, flops, seed, peers=peers or {})
    with progress(say) as report:
        return time_target(what, place, wishes, report, record=record)


def time_target(what: BenchTarget, place: str, wishes: BenchOptions, say: Say, *, record: bool) -> BenchRecord:
    """Run a bench with validated options, on this CPU or on the GPU `place`."""
    if place:
        from noyau.jobs.bench.torch.run import bench_on_device

        result = bench_on_device(what, place, wishes, say)
        for at in result.at if record else ():
            record_winner(what, at)
        return result
    cores, points = processors(), list[BenchPoint]()
    for done, task in enumerate(tasks_of(what, wishes)):
        say(Step(f"timing {name_of(what)}", done, len(wishes.sizes)))
        track = NumpyTrack(task, wishes.cold, wishes.seed, cores)
        points.append(race(track, task.entries, budget_s=wishes.budget_s, cores=cores, say=say))
        if record:
            record_winner(what, points[-1])
    return BenchRecord(name_of(what), this_machine(), {"cores": cores, **pools()}, tuple(points))


def _numbers(name: str, numbers: object) -> Iterator[int]:
    """The numbers of a size, one or several. InputError for anything but integers >= 0."""
    for value in numbers if isinstance(numbers, Iterable) and not isinstance(numbers, str) else (numbers,):
        if isinstance(value, bool) or not isinstance(value, SupportsIndex) or operator.index(value) < 0:
            raise InputError(f"{name} is {value!r}, and a size is an integer from 0")
        yield operator.index(value)


def _requests(sizes: Numbers | None, budget_s: object, peers: object) -> list[dict[str, int]]:
    """The combinations of sizes. InputError for invalid sizes or times, and for peers without names."""
    if isinstance(budget_s, bool) or not isinstance(budget_s, int | float) or not budget_s > 0:
        raise InputError(f"budget_s={budget_s!r} is no number of seconds above 0: budget_s=1")
    if peers is not None and not isinstance(peers, Mapping):
        raise InputError(f"peers={peers!r} has no names: peers={{'torch': f}}")
    return combinations({} if sizes is None else sizes)


def device_of(args: Arguments | None, device: str) -> str:
    """The GPU to time on, empty for the CPU. InputError for an invalid device, BuildError for a missing one."""
    if device not in ("", "cpu") and not re.fullmatch(r"cuda(:\d{1,3})?", device):
        raise InputError(f"device={device!r}: what can be timed on is cpu, cuda, or cuda:1 and the like")
    arguments = args if isinstance(args, list | tuple) else ()
    if device.startswith("cuda") or any(getattr(each, "is_cuda", False) for each in arguments):
        from noyau.hosts.torch.cuda.device import absence

        if lacks := absence(int(device.partition(":")[2] or 0)):
            raise BuildError(lacks)
        from noyau.jobs.bench.torch.run import device_name

        return device or device_name(arguments)
    return ""


def combinations(sizes: Numbers) -> list[dict[str, int]]:
    """All combinations of the numbers of each size. InputError for invalid sizes, or too many combinations."""
    if not isinstance(sizes, Mapping):
        raise InputError(f"sizes={sizes!r} names no size: give {{'n': 1024}}, or several numbers of each")
    several = [list(_numbers(*each)) for each in sizes.items()]
    combined = [dict(zip(sizes, numbers, strict=True)) for numbers in itertools.product(*several)]
    if not combined or len(combined) > MOST_SIZES:
        raise InputError(f"{len(combined)} sets of sizes are asked for; give from 1 to {MOST_SIZES}")
    return combined
