"""The fusable paths of a model: the time of each today, the bytes that it must move and what fusing it can gain."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from noyau.codegen.plan import Plan
from noyau.compiler.partition.cut import Cut, Group
from noyau.compiler.partition.traffic import Traffic, traffic
from noyau.errors import BuildError, InputError
from noyau.hosts.onnxruntime.source_model import SourceModel
from noyau.ir.graph import names_of
from noyau.ir.sizes import bind
from noyau.jobs.profile.attribution import Positions
from noyau.jobs.profile.record import NodeTime, PathTime
from noyau.timing.rates import copy_rate, floor_s, gain_s
from noyau.verify.inputs import Inputs

Shapes = Mapping[str, Sequence[int]]
Spot = tuple[int, int]  # a kernel of a plan, and one of its places


@dataclass(frozen=True, slots=True)
class TimedNodes:
    """A node that ran: its record, and the positions that it stands for."""

    record: NodeTime
    positions: Positions


@dataclass(frozen=True)
class ProfiledModel:
    """A model to profile, and its kernels as `noyau optimize` would make them."""

    original: SourceModel
    plan: Plan
    free: Positions  # shape arithmetic
    cuts: tuple[Cut, ...] = ()

    @cached_property
    def spots(self) -> dict[int, Spot]:
        """The spot of each node position that a kernel would cover."""
        groups = (((n, k), group) for n, each in enumerate(self.plan.kernels) for k, group in enumerate(each.groups))
        return {position: spot for spot, group in groups for position in group.positions}

    def spot_of(self, positions: Positions) -> Spot | None:
        """The place of a kernel that holds most of some nodes; none where one of them is in no path, for a node that
        onnxruntime runs for both stays."""
        places = [self.spots.get(position) for position in sorted(positions - self.free)]
        return Counter(places).most_common(1)[0][0] if places and None not in places else None


def paths(
    subject: ProfiledModel, nodes: Sequence[TimedNodes], inputs: Inputs, shapes: Shapes, threads: int
) -> Iterator[PathTime]:
    """The fusable paths of the planned kernels, in the order of their possible gain."""
    at = defaultdict[Spot | None, list[NodeTime]](list)
    for node in nodes:
        at[subject.spot_of(node.positions)].append(node.record)
    gains = []
    for number, kernel in enumerate(subject.plan.kernels):
        places = [at[number, place] for place in range(len(kernel.groups))]
        times_s = [sum(node.time_s for node in place) for place in places]
        moved = [traffic_of(group, inputs.sizes, shapes) for group in kernel.groups]
        calls = [max((node.calls for node in place), default=1) for place in places]  # of a Loop, its iterations
        known = [(n, each, time_s) for n, each, time_s in zip(calls, moved, times_s, strict=True) if each is not None]
        floors_s = [n * least_s(each, threads) for n, each, _ in known]
        whole, runs_as = None not in moved, tuple(node.operator for node in max(places, key=len))
        gain = sum(gain_s(time_s, floor) for (_, _, time_s), floor in zip(known, floors_s, strict=True))
        ends = (kernel.operator, len(places), kernel.replaces, runs_as, sum(map(len, places)), sum(times_s))
        bytes_moved = sum(n * each.bytes for n, each, _ in known) if whole else None
        gains.append(PathTime(*ends, bytes_moved, sum(floors_s) if whole else None, gain))
    yield from sorted(gains, key=lambda path: (-path.gain_s, -path.time_s))


def traffic_of(group: Group, sizes: Mapping[str, int], shapes: Shapes) -> Traffic | None:
    """The bytes that a group must move, or None where a size is not known."""
    read = [node for node in group.original.inputs if node.output in shapes]
    names, actual = [node.output for node in read], [shapes[node.output] for node in read]
    try:
        numbers = {**sizes, **bind([node.shape for node in read], actual, names)}
        return traffic(group.graph, numbers) if names_of(group.graph) <= numbers.keys() else None
    except (InputError, ZeroDivisionError):
        return None


def least_s(moved: Traffic, threads: int) -> float:
    """The floor of so much traffic, as reports have it; without a compiler to measure reads with, that of a copy."""
    try:
        return floor_s(moved.read_bytes, moved.written_bytes, threads)
    except BuildError:
        return moved.bytes / copy_rate(moved.bytes, threads)
