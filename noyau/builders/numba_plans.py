"""What a kernel of language numba calls for inputs of certain shapes: found once, by its own function, and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

Shape = tuple[int, ...]
_KINDS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)] + ["float32", "float64", "bool_"]


@dataclass(frozen=True, slots=True)
class Step:
    """One launch: its number, what it is given by the places of `Plan.values`, and how many items it has, where they
    may be shared."""

    launch: int
    places: tuple[int, ...]
    items: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The launches in order, the shapes of outputs, and shape and dtype of each scratch array. `status`: what the
    kernel's own function returns, where it refuses shapes."""

    steps: tuple[Step, ...]
    outputs: tuple[Shape, ...]
    scratch: tuple[tuple[Shape, Any], ...]
    numbers: tuple[int, ...]
    constants: tuple[int, ...]
    status: int

    def values(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """What the places of steps are of: the inputs, outputs and scratch, then inputs without axes as numbers, then
        sizes."""
        return [*arrays, *(arrays[at][()] for at in self.numbers), *self.constants]


@dataclass(frozen=True, slots=True)
class _End:
    """Stands for an array: what a kernel's own function asks of one."""

    place: int
    shape: Shape

    def __getitem__(self, index: tuple[()]) -> _Number:
        return _Number(self.place)


@dataclass(frozen=True, slots=True)
class _Number:
    place: int


def plan(function: Any, launches: Sequence[str], inputs: Sequence[Shape], outputs: Sequence[Shape]) -> Plan:
    """The plan of a kernel's own function, whose launches have these names in its text."""
    noted: list[tuple[int, tuple[Any, ...]]] = []
    ends = [_End(at, shape) for at, shape in enumerate((*inputs, *outputs))]
    scratch: list[tuple[Shape, Any]] = []

    def empty(shape: Shape, kind: Any) -> _End:
        scratch.append((tuple(map(int, shape)), kind))
        return _End(len(ends) + len(scratch) - 1, scratch[-1][0])

    def note(number: int, *arguments: Any) -> int:
        noted.append((number, arguments))
        return 0

    status = FunctionType(function.__code__, {**function.__globals__, **_scope(launches, note, empty)})(*ends)
    numbers = tuple(at for at, shape in enumerate(inputs) if not shape)
    constants: dict[int, int] = {}
    before = len(ends) + len(scratch)
    steps = [_step(*each, function.__globals__[launches[each[0]]], before, numbers, constants) for each in noted]
    return Plan(tuple(steps), tuple(outputs), tuple(scratch), numbers, tuple(constants), status or 0)


def _scope(launches: Sequence[str], note: Callable[..., int], empty: Callable[..., _End]) -> Mapping[str, Any]:
    """What the function sees: launches that are noted, one thread, and scratch that is only described."""
    return {
        **{name: partial(note, number) for number, name in enumerate(launches)},
        "prange": range,
        "numba": SimpleNamespace(get_num_threads=lambda: 1),
        "np": SimpleNamespace(empty=empty, **{kind: getattr(np, kind) for kind in _KINDS}),
    }


def _step(
    number: int, arguments: tuple[Any, ...], launch: Any, before: int, numbers: Sequence[int], constants: dict[int, int]
) -> Step:
    shares = parameters_of(launch.py_func)[-2:] == ("begin", "end")
    given, items = (arguments[:-2], int(arguments[-1])) if shares else (arguments, None)
    places = []
    for each in given:
        match each:
            case _End(place):
                places.append(place)
            case _Number(place):
                places.append(before + numbers.index(place))
            case _:
                at = constants.setdefault(int(each), len(constants))
                places.append(before + len(numbers) + at)
    return Step(number, tuple(places), items)


def parameters_of(function: Any) -> tuple[str, ...]:
    """The names of a function's parameters, in order."""
    code = function.__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount]
    return names
