"""Signatures settled: families as dtypes, Rests as axes, how the sizes follow from the shapes, and random inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import SignatureError
from noyau.ir.dims import Dim, Shape, product
from noyau.ir.sizes import Binding, Sizes, listing_of, plan
from noyau.signatures.types import ELLIPSIS, Family, Instance, Rest, Signature, Term, Value, brief, spell_dim

Known = tuple[tuple[str, int], ...]
Families = Mapping[Family, DType]
_STAND_IN = 7  # for a number that is only known in a call
Maker = Callable[..., Any]
USUAL_DTYPES = {Family.FLOAT: DType.F32, Family.INT: DType.I64, Family.ANY: DType.F32}
USUAL_SIZES = (5, 3, 7, 2)  # small primes, of the sizes in turn
_MOST_DOUBLINGS = 10  # of one size at once, until a result has more cells: `f32[n] -> f32[n // 1000]`
_REACH = 100  # of integers, which are drawn from [-100, 100]


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
    bound = bound_names(signature, known) | known | {term.rest.name for term in signature.inputs if term.rest}
    return [name for name in signature.sizes if name not in bound]


@lru_cache(maxsize=1024)
def instance_of(signature: Signature, dtypes: tuple[DType, ...], ranks: tuple[int, ...], known: Known = ()) -> Instance:
    """The instance for inputs of these dtypes and ranks; `known` are sizes as numbers.

    SignatureError for the first input that does not fit."""
    families, axes = dict[Family, DType](), dict[str, Shape]()
    for term, dtype, rank in zip(signature.inputs, dtypes, ranks, strict=True):
        fault = dtype_fault(term, dtype, families) or rank_fault(term, rank, axes)
        if fault:
            raise SignatureError(f"{term.name}: {dtype.value} of rank {rank} does not fit {brief(term)}{fault}")
        if isinstance(term.element, Family):
            families[term.element] = dtype
        if term.rest is not None and term.rest.name not in axes:
            axes[term.rest.name] = _axes(signature, term.rest, rank - len(term.fixed))
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


def dtype_fault(term: Term, dtype: DType, families: Families) -> str:
    """Why a term cannot be of this dtype, or nothing; no reason is needed where the term names another."""
    element = term.element
    is_member = isinstance(element, Family) and dtype in element.members and families.get(element, dtype) is dtype
    return "" if is_member or dtype is element else " in its dtype"


def rank_fault(term: Term, rank: int, axes: Mapping[str, Shape]) -> str:
    """Why a term cannot be of this rank, or nothing."""
    left = rank - len(term.fixed)
    if term.rest is None:
        return "" if left == 0 else " in its rank"
    expected = axes.get(term.rest.name)
    return "" if left >= 0 and (expected is None or len(expected) == left) else " in its rank"


def _axes(signature: Signature, rest: Rest, count: int) -> Shape:
    """The names of the axes of a Rest: `batch_0`, `batch_1`..., like no other size."""
    stem = "rest" if rest.name == ELLIPSIS else rest.name
    while any(f"{stem}_{k}" in signature.sizes for k in range(count)):
        stem += "_"
    return tuple(Dim.of(f"{stem}_{k}") for k in range(count))


def _value(term: Term, families: Families, axes: Mapping[str, Shape], numbers: Sizes) -> Value:
    shape: list[Dim] = []
    for dim in term.dims or ():
        shape += axes[dim.name] if isinstance(dim, Rest) else (_replace_sizes(dim, numbers),)
    return Value(term.name, _dtype(term, families), tuple(shape), term.dims is None)


def _replace_sizes(dim: Dim, numbers: Mapping[str, int]) -> Dim:
    replaced = dim.replace(numbers)
    if replaced.constant is not None and replaced.constant < 0:
        own = {name: numbers[name] for name in sorted(dim.names & numbers.keys())}
        raise SignatureError(f"the extent {brief(dim)} is {replaced} where {listing_of(own)}")
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
            where = f"where {listing_of(sizes)}; give larger inputs"
            raise SignatureError(f"{value.name}: {brief(value)} has no such shape {where}")
        shapes.append(shape)
    return shapes


def usual_instance(signature: Signature, known: Sizes, families: Families = USUAL_DTYPES, axes: int = 1) -> Instance:
    """The instance of a dtype for each family and so many axes for each Rest; `known` has integers that give a dim."""
    dtypes = tuple(_dtype(term, families) for term in signature.inputs)
    ranks = tuple(len(term.fixed) + axes * (term.rest is not None) for term in signature.inputs)
    return instance_of(signature, dtypes, ranks, tuple(sorted(known.items())))


def usual_sizes(instance: Instance, requested: Mapping[str, int]) -> dict[str, int]:
    """A number for each size that the shapes give: a wanted one, or a small prime; some of these are larger where a
    result would have no cell, as of `f32[n], f32[k] -> f32[n - k + 1]`."""
    names = [binding.size for binding in plan([value.shape for value in instance.inputs])]
    sizes = {name: requested.get(name, USUAL_SIZES[at % len(USUAL_SIZES)]) for at, name in enumerate(names)}
    free = [name for name in names if name not in requested]
    while (lacking := _lacking(instance, sizes)) and free:
        for doublings in range(1, _MOST_DOUBLINGS + 1):
            larger = [{**sizes, name: (sizes[name] + 1 << doublings) - 1} for name in free]
            best = min(larger, key=lambda one: _lacking(instance, one))
            if _lacking(instance, best) < lacking:
                break
        else:
            break
        sizes = best
    return sizes


def _lacking(instance: Instance, sizes: Mapping[str, int]) -> int:
    """By how much the extents of the results, as far as these sizes tell them, are below 1, all together."""
    return sum(max(0, 1 - _extent(dim, sizes)) for value in instance.outputs for dim in value.shape)


def _extent(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The number of a dim; 1 where it is divided by 0, or not told by sizes."""
    try:
        return int(dim.evaluate(sizes))
    except (KeyError, ZeroDivisionError):
        return 1


def integers_of(signature: Signature, requested: Mapping[str, int]) -> dict[str, int]:
    """A number for each integer parameter that gives a dim which no shape gives."""
    names = sizing_integers(signature)
    return {name: requested.get(name, USUAL_SIZES[at % len(USUAL_SIZES)]) for at, name in enumerate(names)}


def make(instance: Instance, sizes: Sizes, integers: Sizes, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """An array for each input: floats standard normal, integers within 100 of 0, bools even. `integers`: the values of
    parameters that give a dim. SignatureError where an extent would be negative."""
    shapes = shapes_of(instance.inputs, sizes)
    return tuple(_array(*each, integers, rng) for each in zip(instance.inputs, shapes, strict=True))


def draw_inputs(
    maker: Maker, rng: np.random.Generator, sizes: Sizes, parameters: Sequence[str], called: str
) -> tuple[Any, ...]:
    """Draw the inputs that `inputs=` of an op gives: its parameters after `rng` are sizes with their usual values.

    SignatureError where it has no such size, or gives another number of inputs."""
    names = sizes_of(maker)
    unknown = next((name for name in sizes if name not in names), None)
    if unknown is not None:
        fault = f"takes no size {unknown}; it takes {', '.join(names) or 'none'}"
        raise SignatureError(f"inputs= of {called} {fault}")
    result = maker(rng, **sizes)
    if isinstance(result, Mapping):
        if set(result) != set(parameters):
            fault = f"names {', '.join(map(str, result))}, and it takes {', '.join(parameters)}"
            raise SignatureError(f"inputs= of {called} {fault}")
        return tuple(result[name] for name in parameters)
    arrays = tuple(result) if isinstance(result, tuple | list) else (result,)
    if len(arrays) != len(parameters):
        raise SignatureError(f"inputs= of {called} gives {len(arrays)} inputs, and it takes {', '.join(parameters)}")
    return arrays


def sizes_of(maker: Maker) -> list[str]:
    """The sizes that a maker of inputs takes."""
    return list(inspect.signature(maker).parameters)[1:]


def in_dtypes(arrays: Sequence[Any], signature: Signature, dtypes: Sequence[DType]) -> tuple[Any, ...]:
    """Cast the arrays of a maker to dtypes of a family of floats; the maker gives one of them."""
    alike = zip(arrays, signature.inputs, dtypes, strict=True)
    return tuple(
        np.asarray(array).astype(dtype.numpy) if term.element is Family.FLOAT else array for array, term, dtype in alike
    )


def _dtype(term: Term, families: Families) -> DType:
    return families[term.element] if isinstance(term.element, Family) else term.element


def _array(value: Value, shape: Sequence[int], integers: Mapping[str, int], rng: np.random.Generator) -> np.ndarray:
    if value.scalar and value.name in integers:
        return np.array(integers[value.name], value.dtype.numpy)
    match value.dtype.kind:
        case "float" | "float8":
            return rng.standard_normal(shape).astype(value.dtype.numpy)
        case "bool":
            return rng.random(shape) < 0.5
        case "int" | "uint" as kind:
            least = 0 if kind == "uint" else -_REACH
            return rng.integers(least, _REACH, shape, endpoint=True).astype(value.dtype.numpy)
        case _:
            raise SignatureError(f"{value.name}: {value.dtype.value} cannot be made up")


def maker_text(signature: Signature) -> str:
    """Suggest, to be changed, `inputs=lambda rng, n=64: (rng.standard_normal(n).astype("float32"),)`."""
    sizes = ", ".join(f"{name}=64" for name in signature.sizes)
    values = ", ".join(term.name if term.name in signature.sizes else _drawn_text(term) for term in signature.inputs)
    return f"inputs=lambda rng{', ' * bool(sizes)}{sizes}: ({values},)"


def _drawn_text(term: Term) -> str:
    dtype = _dtype(term, USUAL_DTYPES)
    if term.dims is None:
        return "1.0" if dtype.is_float else "1"
    dims = ", ".join(spell_dim(dim).removeprefix("*").replace("...", "3") for dim in term.dims)
    shape = dims if len(term.dims) == 1 else f"({dims})"
    draw = f"rng.standard_normal({shape})" if dtype.is_float else f"rng.integers(0, 2, {shape})"
    return f'{draw}.astype("{dtype.numpy.name}")'
