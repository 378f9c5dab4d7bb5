"""Signatures settled: families as dtypes, Rests as axes, and how the sizes follow from the shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from noyau.dtypes import DType
from noyau.errors import SignatureError
from noyau.ir.dims import Dim, Shape, product
from noyau.ir.sizes import Binding, plan
from noyau.signatures.types import ELLIPSIS, Family, Instance, Rest, Signature, Term, Value, brief

Known = tuple[tuple[str, int], ...]
_STAND_IN = 7  # for a number that is only known in a call


def bound_names(signature: Signature, known: Iterable[str]) -> frozenset[str]:
    """The names of dims that the shapes of the inputs give, once `known` are numbers."""
    numbers = dict.fromkeys(known, _STAND_IN)
    shapes = [tuple(dim.replace(numbers) for dim in term.fixed) for term in signature.inputs]
    return frozenset(binding.size for binding in plan(shapes))


@lru_cache(maxsize=1024)
def sizing_integers(signature: Signature) -> tuple[str, ...]:
    """The integer parameters that give a dim which no shape gives."""
    shaped = bound_names(signature, ())
    return tuple(name for name in signature.integers if name not in shaped)


def unbound_names(signature: Signature, known: Iterable[str]) -> list[str]:
    """The names of dims that neither the shapes of the inputs nor `known` give, in order."""
    known = {*known, *signature.integers}
    rests = {term.rest.name for term in signature.inputs if term.rest}
    bound = bound_names(signature, known) | known | rests
    return [name for name in signature.sizes if name not in bound]


@lru_cache(maxsize=1024)
def instance_of(signature: Signature, dtypes: tuple[DType, ...], ranks: tuple[int, ...], known: Known = ()) -> Instance:
    """The instance for inputs of these dtypes and ranks; `known` are sizes as numbers.

    SignatureError for the first input that does not fit."""
    families: dict[Family, DType] = {}
    axes: dict[str, Shape] = {}
    for term, dtype, rank in zip(signature.inputs, dtypes, ranks, strict=True):
        fault = dtype_fault(term, dtype, families) or rank_fault(term, rank, axes)
        if fault:
            raise SignatureError(f"{term.name}: {dtype.value} of rank {rank} does not fit {brief(term)}{fault}")
        _settle(signature, term, dtype, rank, families, axes)
    numbers = dict(known)
    inputs = tuple(_value(term, families, axes, numbers) for term in signature.inputs)
    outputs = tuple(_value(term, families, axes, numbers) for term in signature.outputs)
    return Instance(inputs, outputs, tuple(_sizes(signature, axes, numbers)))


def axes_of(signature: Signature, ranks: Sequence[int]) -> dict[Rest, int]:
    """Count the axes that stand for each Rest where the inputs have these ranks."""
    pairs = zip(signature.inputs, ranks, strict=True)
    return {term.rest: rank - len(term.fixed) for term, rank in pairs if term.rest is not None}


def spell_axes(axes: Mapping[Rest, int]) -> str:
    """The same in words: `1 axis for *batch`; nothing where there is no Rest."""
    return " and ".join(f"{count} ax{'i' if count == 1 else 'e'}s for {rest}" for rest, count in axes.items())


@lru_cache(maxsize=1024)
def bindings_of(instance: Instance) -> tuple[Binding, ...]:
    """Plan the sizes of an instance from the shapes of its inputs."""
    return plan([value.shape for value in instance.inputs])


def dtype_fault(term: Term, dtype: DType, families: Mapping[Family, DType]) -> str:
    """Why a term cannot be of this dtype, or nothing; no reason is needed where the term names another."""
    match term.element:
        case Family() as family:
            fits = dtype in family.members and families.get(family, dtype) is dtype
        case expected:
            fits = dtype is expected
    return "" if fits else " in its dtype"


def rank_fault(term: Term, rank: int, axes: Mapping[str, Shape]) -> str:
    """Why a term cannot be of this rank, or nothing."""
    left = rank - len(term.fixed)
    if term.rest is None:
        return "" if left == 0 else " in its rank"
    expected = axes.get(term.rest.name)
    return "" if left >= 0 and (expected is None or len(expected) == left) else " in its rank"


def _settle(
    signature: Signature, term: Term, dtype: DType, rank: int, families: dict[Family, DType], axes: dict[str, Shape]
) -> None:
    if isinstance(term.element, Family):
        families[term.element] = dtype
    if term.rest is not None and term.rest.name not in axes:
        axes[term.rest.name] = _axes(signature, term.rest, rank - len(term.fixed))


def _axes(signature: Signature, rest: Rest, count: int) -> Shape:
    """The names of the axes of a Rest: `batch_0`, `batch_1`..., like no other size."""
    stem = "rest" if rest.name == ELLIPSIS else rest.name
    while any(f"{stem}_{k}" in signature.sizes for k in range(count)):
        stem += "_"
    return tuple(Dim.of(f"{stem}_{k}") for k in range(count))


def _value(
    term: Term, families: Mapping[Family, DType], axes: Mapping[str, Shape], numbers: Mapping[str, int]
) -> Value:
    dtype = families[term.element] if isinstance(term.element, Family) else term.element
    shape: list[Dim] = []
    for dim in term.dims or ():
        shape += axes[dim.name] if isinstance(dim, Rest) else (_replaced(dim, numbers),)
    return Value(term.name, dtype, tuple(shape), term.dims is None)


def _replaced(dim: Dim, numbers: Mapping[str, int]) -> Dim:
    replaced = dim.replace(numbers)
    if replaced.constant is not None and replaced.constant < 0:
        listing = ", ".join(f"{name}={numbers[name]}" for name in sorted(dim.names & numbers.keys()))
        raise SignatureError(f"the extent {brief(dim)} is {replaced} where {listing}")
    return replaced


def _sizes(signature: Signature, axes: Mapping[str, Shape], numbers: Mapping[str, int]) -> Iterable[tuple[str, Dim]]:
    for name in signature.sizes:
        if name not in signature.integers:
            yield name, product(axes[name]) if name in axes else Dim.of(numbers.get(name, name))


def shapes_of(values: Sequence[Value], sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The shapes of values where the sizes are known. SignatureError where an extent would be negative."""
    shapes = []
    for value in values:
        try:
            shape = tuple(int(dim.evaluate(sizes)) for dim in value.shape)
        except ZeroDivisionError:
            shape = (-1,)
        if min(shape, default=0) < 0:
            listing = ", ".join(f"{name}={size}" for name, size in sizes.items())
            raise SignatureError(f"{value.name}: {brief(value)} has no such shape where {listing}; give larger inputs")
        shapes.append(shape)
    return shapes
