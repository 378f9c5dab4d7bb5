"""What a kernel that is on no op is judged by: a function of NumPy, which takes some of the kernel's arguments and
gives, or fills, others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.checking.values import Spelt
from noyau.dispatching.generating import Wanted, spelling
from noyau.dtypes import DType, from_numpy
from noyau.errors import InputError, SignatureError
from noyau.ir.dims import shape_of
from noyau.ir.graph import Graph
from noyau.references import Reference, graph_of
from noyau.signatures.types import Instance, Value

Array = np.ndarray
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Judged:
    """A reference as a graph of the arrays that it takes, what the kernel gave for its outputs, and the inputs."""

    graph: Graph
    spelt: Spelt
    inputs: tuple[Array, ...]
    results: tuple[Array, ...]


def judged_by(
    reference: Callable[..., Any],
    names: Sequence[str],
    before: Sequence[Any],
    after: Sequence[Any],
    returned: Any,
    called: str,
) -> Judged:
    """How a reference judges a call. `before`, `after`: the arguments, arrays as NumPy's; `returned`: by the kernel.

    SignatureError where the reference takes what there is not, or gives more or fewer results, or others, than there
    are arrays to compare; InputError where it fails on the arguments."""
    taken = _taken(reference, names, called)
    given = [before[place] for place in taken]
    places = [at for at, each in enumerate(given) if isinstance(each, np.ndarray) and _dtype(each) is not None]
    inputs = [Value(names[taken[at]], _known(given[at]), shape_of(given[at].shape)) for at in places]

    def bound(*arrays: Any) -> Any:
        passed = list(given)
        for at, each in zip(places, arrays, strict=True):
            passed[at] = each
        made = reference(*passed)
        return made if made is not None else _one(tuple(passed[at] for at in places))

    bound.__name__ = getattr(reference, "__name__", "reference")
    fills, made = _tried(reference, given, called)
    chosen = _compared(names, after, taken, [taken[at] for at in places] if fills else None, made, returned, called)
    held = {value.name for value in inputs}
    ends = [(f"{name} afterwards" if name in held else name, each) for name, each in chosen]
    outputs = tuple(Value(name, _known(each), shape_of(each.shape)) for name, each in ends)
    instance = Instance(tuple(inputs), outputs, ())
    own = Reference(bound, tuple(value.name for value in inputs), {})
    graph = graph_of(own, instance, {})
    spelt: Spelt = (lambda: None) if fills else spelling(own, Wanted(instance, {}))
    arrays = tuple(given[at] for at in places)
    return Judged(graph, spelt, arrays, tuple(each for _, each in chosen))


def _taken(reference: Callable[..., Any], names: Sequence[str], called: str) -> list[int]:
    """Which arguments of the kernel a reference takes: by name, else the first ones."""
    if isinstance(reference, np.ufunc):
        return list(range(min(reference.nin, len(names))))
    try:
        parameters = list(inspect.signature(reference).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        return list(range(len(names)))
    known = [each for each in parameters if each.kind in _POSITIONAL]
    own = [each.name for each in known if each.default is inspect.Parameter.empty]
    if all(name in names for name in own):
        wanted = [each.name for each in known if each.name in names]
        if wanted == [each.name for each in known[: len(wanted)]]:
            return [list(names).index(name) for name in wanted]
    if len(own) > len(names):
        told = f"its reference takes {', '.join(own)}, and the kernel {', '.join(names)}"
        raise SignatureError(f"{called}: {told}")
    return list(range(len(own)))


def _tried(reference: Callable[..., Any], given: Sequence[Any], called: str) -> tuple[bool, list[Any]]:
    """Whether it fills what it takes, and its results."""
    copies = [np.array(each) if isinstance(each, np.ndarray) else each for each in given]
    try:
        with np.errstate(all="ignore"):
            made = reference(*copies)
    except Exception as fault:
        told = f"fails with {type(fault).__name__}: {fault}"
        raise InputError(f"{called}: its reference does not take these arguments: it {told}") from fault
    return made is None, list(made) if isinstance(made, tuple | list) else [made]


def _compared(
    names: Sequence[str],
    after: Sequence[Any],
    taken: Sequence[int],
    filled: Sequence[int] | None,
    made: Sequence[Any],
    returned: Any,
    called: str,
) -> list[tuple[str, Array]]:
    """The arrays that the reference speaks of, with their names: what the kernel returned; those that the reference
    fills; those that it does not take; else the last ones."""
    arrays = [at for at, each in enumerate(after) if isinstance(each, np.ndarray)]
    if filled is not None:
        return _require([(names[at], after[at]) for at in filled], called)
    if returned is not None:
        parts = list(returned) if isinstance(returned, tuple | list) else [returned]
        found = [
            (f"result {at}" if len(parts) > 1 else "the result", np.asarray(each)) for at, each in enumerate(parts)
        ]
    else:
        others = [at for at in arrays if at not in taken]
        places = others if len(others) >= len(made) else arrays[-len(made) :]
        found = [(names[at], after[at]) for at in places[: len(made)]]
    if len(found) != len(made):
        raise SignatureError(
            f"{called}: its reference gives {len(made)} results, and there are {len(found)} to compare"
        )
    for (name, array), want in zip(found, made, strict=True):
        if np.shape(want) != array.shape:
            shapes = f"{list(np.shape(want))}, and {name} is {list(array.shape)}"
            raise SignatureError(f"{called}: its reference gives a result of shape {shapes}")
    return _require(found, called)


def _require(found: list[tuple[str, Array]], called: str) -> list[tuple[str, Array]]:
    """SignatureError for a dtype that is not judged, or where there is nothing."""
    if not found:
        raise SignatureError(f"{called}: its reference returns nothing and fills nothing; let it return what is right")
    for name, array in found:
        if _dtype(array) is None:
            raise SignatureError(f"{called}: {name} is {array.dtype}, of which no values are judged")
    return found


def _one(parts: tuple[Any, ...]) -> Any:
    return parts[0] if len(parts) == 1 else parts


def _dtype(array: Array) -> DType | None:
    found = from_numpy(array.dtype)
    return None if found is DType.OTHER else found


def _known(array: Array) -> DType:
    found = _dtype(array)
    assert found is not None, array.dtype
    return found
