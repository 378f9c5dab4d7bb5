"""Settled signatures: families as dtypes, Rests as axes, sizes from shapes; arguments bound to terms; random inputs."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from noyau.dtypes import DType, from_numpy, of_array
from noyau.errors import SignatureError
from noyau.ir.dims import Dim, Shape, product
from noyau.ir.sizes import Binding, Sizes, extents_at, listing_of, plan
from noyau.signatures.types import ELLIPSIS, Family, Instance, Rest, Signature, Term, Value, brief, spell_dim
from noyau.verify.inputs import require_memory

Known = tuple[tuple[str, int], ...]
Families = Mapping[Family, DType]
_STAND_IN = 7  # for a number that only a call determines
Maker = Callable[..., Any]
USUAL_DTYPES = {Family.FLOAT: DType.F32, Family.INT: DType.I64, Family.ANY: DType.F32}
USUAL_SIZES = (5, 3, 7, 2)  # small primes, assigned to the sizes in turn
_MOST_DOUBLINGS = 10  # of one size, until a result has more cells: `f32[n] -> f32[n // 1000]`
_REACH = 100  # of integers, which are drawn from [-100, 100]


def bound_names(signature: Signature, known: Iterable[str]) -> frozenset[str]:
    """The names of dims that the shapes of the inputs bind, if `known` are numbers."""
    numbers = dict.fromkeys(known, _STAND_IN)
    shapes = [tuple(dim.replace(numbers) for dim in term.fixed) for term in signature.inputs]
    return frozenset(binding.size for binding in plan(shapes))


@lru_cache(maxsize=1024)
def sizing_integers(signature: Signature) -> tuple[str, ...]:
    """The integer parameters that determine a dim which no shape binds."""
    shaped = bound_names(signature, ())
    return tuple(name for name in signature.integers if name not in shaped)


def unbound_names(signature: Signature, known: Iterable[str]) -> list[str]:
    """The names of dims that neither the shapes of the inputs nor `known` bind, in order."""
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
    """The same as text: `1 axis for *batch`; empty if there is no Rest."""
    return " and ".join(f"{count} ax{'i' if count == 1 else 'e'}s for {rest}" for rest, count in axes.items())


@lru_cache(maxsize=1024)
def bindings_of(instance: Instance) -> tuple[Binding, ...]:
    """Plan the sizes of an instance from the shapes of its inputs."""
    return plan([value.shape for value in instance.inputs])


def dtype_fault(term: Term, dtype: DType, families: Families) -> str:
    """The reason why a term cannot have this dtype, or an empty text; short, since the message names the term."""
    element = term.element
    is_member = isinstance(element, Family) and dtype in element.members and families.get(element, dtype) is dtype
    return "" if is_member or dtype is element else " in its dtype"


def rank_fault(term: Term, rank: int, axes: Mapping[str, Shape]) -> str:
    """The reason why a term cannot have this rank, or an empty text."""
    left = rank - len(term.fixed)
    if term.rest is None:
        return "" if left == 0 else " in its rank"
    expected = axes.get(term.rest.name)
    return "" if left >= 0 and (expected is None or len(expected) == left) else " in its rank"


def _axes(signature: Signature, rest: Rest, count: int) -> Shape:
    """The names of the axes of a Rest: `batch_0`, `batch_1`..., different from all sizes."""
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
    """The shapes of values at known sizes. SignatureError where an extent would be negative."""
    shapes = []
    for value in values:
        try:
            shape = extents_at(sizes, value.shape)
        except ZeroDivisionError:
            shape = (-1,)
        if min(shape, default=0) < 0:
            where = f"where {listing_of(sizes)}; give larger inputs"
            raise SignatureError(f"{value.name}: {brief(value)} has no such shape {where}")
        shapes.append(shape)
    return shapes


def usual_instance(signature: Signature, known: Sizes, families: Families = USUAL_DTYPES, axes: int = 1) -> Instance:
    """The instance with a dtype for each family and `axes` axes for each Rest; `known`: integers that give a dim."""
    dtypes = tuple(_dtype(term, families) for term in signature.inputs)
    ranks = tuple(len(term.fixed) + axes * (term.rest is not None) for term in signature.inputs)
    return instance_of(signature, dtypes, ranks, tuple(sorted(known.items())))


def usual_sizes(instance: Instance, requested: Mapping[str, int]) -> dict[str, int]:
    """A number for each size that the shapes bind: a requested one, or a small prime; some are larger where a result
    would have no cell, as of `f32[n], f32[k] -> f32[n - k + 1]`."""
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
    """The total by which the extents of the results, as far as these sizes determine them, are below 1."""
    return sum(max(0, 1 - _extent(dim, sizes)) for value in instance.outputs for dim in value.shape)


def _extent(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The number of a dim; 1 if it divides by 0, or if the sizes do not determine it."""
    try:
        return int(dim.evaluate(sizes))
    except (KeyError, ZeroDivisionError):
        return 1


def integers_of(signature: Signature, requested: Mapping[str, int]) -> dict[str, int]:
    """A number for each integer parameter that determines a dim which no shape binds."""
    names = sizing_integers(signature)
    return {name: requested.get(name, USUAL_SIZES[at % len(USUAL_SIZES)]) for at, name in enumerate(names)}


def make(instance: Instance, sizes: Sizes, integers: Sizes, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """An array for each input: floats standard normal, integers within 100 of 0, bools even. `integers`: the values of
    parameters that determine a dim. SignatureError where an extent would be negative."""
    shapes = shapes_of(instance.inputs, sizes)
    inputs = list(zip(instance.inputs, shapes, strict=True))
    require_memory(sum(value.dtype.bytes * math.prod(shape) for value, shape in inputs), "the inputs")
    return tuple(_array(*each, integers, rng) for each in inputs)


def draw_inputs(
    maker: Maker, rng: np.random.Generator, sizes: Sizes, parameters: Sequence[str], called: str
) -> tuple[Any, ...]:
    """Draw inputs from the `inputs=` of an op: its parameters after `rng` are sizes with default values.

    SignatureError where it has no such size, or returns another number of inputs."""
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
    """Cast the arrays of a maker of inputs to dtypes of a float family; the maker returns one of these dtypes."""
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
    """Suggest a template such as `inputs=lambda rng, n=64: (rng.standard_normal(n).astype("float32"),)`."""
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


Array = np.ndarray
Fitting = Sequence[tuple[Term, Array]]  # the arguments that fit, with their terms
_WEAK = {bool: DType.BOOL, int: DType.I64, float: DType.F64}  # Python numbers, and their default dtypes
_OTHERS = {
    "c": "complex numbers are not computed with: give .real and .imag",
    "O": "its cells are objects: .astype(np.float32) makes them numbers",
}
_USUAL = {Family.FLOAT: DType.F32, Family.INT: DType.I64}  # the suggested target of a cast
_NONE: Mapping[Family, DType] = MappingProxyType({})
TAKES = {"float": (int, float), "int": (int,), "uint": (int,), "bool": (bool,)}


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound arguments of one call, in the order of the signature: scalars are arrays of rank 0.

    `sizes` are those of the instance; `shapes` those of the results."""

    instance: Instance
    arrays: tuple[Array, ...]
    sizes: Mapping[str, int]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def largest(self) -> int:
        """The cells of the largest array."""
        return max((array.size for array in self.arrays), default=0)


def bind(signature: Signature, arguments: Sequence[object], known: Mapping[str, int], called: str) -> Bound:
    """Bind arguments to a signature. `known`: sizes that no shape binds. SignatureError for the first misfit."""
    try:
        arrays = _admit(signature.inputs, arguments)
        numbers = {**known, **_integers(signature, arrays)}
        parameters = tuple(sorted((name, size) for name, size in numbers.items() if name in signature.sizes))
        ranks = tuple(array.ndim for array in arrays)
        instance = instance_of(signature, tuple(map(of_array, arrays)), ranks, parameters)
        sizes = _solve_sizes(signature, instance, arrays)
        return Bound(instance, arrays, sizes, tuple(shapes_of(instance.outputs, sizes)))
    except SignatureError as error:
        raise SignatureError(f"{called}: {error}") from None


def describe(argument: object) -> str:
    """An argument in the notation of signatures: `f32[4, 41]`, `f32`, `complex64[3]`, `0.5`, `a list`."""
    if isinstance(argument, np.ma.MaskedArray):
        return "a masked array"
    if isinstance(argument, np.ndarray | np.generic):
        own = argument.dtype.name if argument.dtype.isnative else argument.dtype.str
        name = own if from_numpy(argument.dtype) in (None, DType.OTHER) else of_array(np.asarray(argument)).value
        return f"{name}{list(argument.shape)}" if isinstance(argument, np.ndarray) else name
    return repr(argument) if type(argument) in _WEAK else kind_of(argument)


def kind_of(argument: object) -> str:
    """The type of an argument as text: `a list`, `an int`."""
    kind = type(argument).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def bindings_of_arrays(terms: Sequence[Term], arrays: Sequence[Array]) -> list[str]:
    """For each argument that fits so far, its bindings as text: `rows=4, n=41`, `batch=(2, 3)`, `float=f32`; or ""."""
    instance = instance_of(Signature(tuple(terms), ()), tuple(map(of_array, arrays)), tuple(a.ndim for a in arrays))
    bindings: list[dict[str, object]] = [{} for _ in terms]
    contested: set[Family | Rest] = set()
    for k, (term, array) in enumerate(zip(terms, arrays, strict=True)):
        if isinstance(term.element, Family) and term.element not in contested:
            bindings[k][term.element.value] = of_array(array).value
        if term.rest is not None and term.rest not in contested:
            first = (term.dims or ()).index(term.rest)
            bindings[k][term.rest.name] = array.shape[first : first + array.ndim - len(term.fixed)]
        contested |= {part for part in (term.element, term.rest) if isinstance(part, Family | Rest)}
    owners = {binding.size: binding.input for binding in bindings_of(instance)}
    for name, size in _sizes_of_shapes(instance, arrays).items():
        if any(name in dim.names for dim in terms[owners[name]].fixed):
            bindings[owners[name]][name] = size
    return [", ".join(f"{name}={value}" for name, value in each.items()) for each in bindings]


def _admit(terms: Sequence[Term], arguments: Sequence[object]) -> tuple[Array, ...]:
    """The arguments as arrays, each of its term's dtype and rank."""
    families, axes, fitting = dict[Family, DType](), dict[str, tuple[Dim, ...]](), list[tuple[Term, Array]]()
    pairs = list(zip(terms, arguments, strict=True))
    for term, value in [pair for pair in pairs if not _is_weak(*pair)]:
        array = _array_or_none(value)
        if array is None or dtype_fault(term, of_array(array), families) or rank_fault(term, array.ndim, axes):
            raise _misfit(term, value, fitting, families)
        fitting.append((term, array))
        if isinstance(term.element, Family):
            families[term.element] = of_array(array)
        if term.rest is not None:
            axes.setdefault(term.rest.name, (Dim.of(0),) * (array.ndim - len(term.fixed)))
    arrays = iter([array for _, array in fitting])
    return tuple(_scalar(*pair, families, fitting) if _is_weak(*pair) else next(arrays) for pair in pairs)


def _is_weak(term: Term, value: object) -> bool:
    return term.dims is None and type(value) in _WEAK


def _array_or_none(value: object) -> Array | None:
    """The argument as an array of one of noyau's dtypes, or None."""
    if not isinstance(value, np.ndarray | np.generic) or isinstance(value, np.ma.MaskedArray):
        return None
    array = np.asarray(value)
    return array if from_numpy(array.dtype) not in (None, DType.OTHER) else None


def _scalar(term: Term, value: object, families: dict[Family, DType], fitting: Fitting) -> Array:
    """A Python number in the dtype of its term, as NumPy promotes it beside arrays of that dtype."""
    assert isinstance(value, bool | int | float)
    dtype = term.element
    if isinstance(dtype, Family):
        dtype = families.setdefault(dtype, DType.F64 if dtype is Family.FLOAT else _WEAK[type(value)])
    fits = type(value) in TAKES[dtype.kind] and not dtype_fault(term, dtype, {})
    if fits and dtype.kind in ("int", "uint"):
        limits = np.iinfo(dtype.numpy)
        fits = limits.min <= value <= limits.max
    if not fits:
        raise _misfit(term, value, fitting)
    with np.errstate(over="ignore"):
        return np.array(value).astype(dtype.numpy)


def _misfit(term: Term, value: object, fitting: Fitting, families: Mapping[Family, DType] = _NONE) -> SignatureError:
    bindings = bindings_of_arrays([each for each, _ in fitting], [array for _, array in fitting])
    lines = [f"{t.name}: {describe(a)} binds {line}" for (t, a), line in zip(fitting, bindings, strict=True) if line]
    remedy = _remedy(term, value, families)
    return SignatureError("; ".join([*lines, f"{term.name}: {describe(value)} does not fit {brief(term)}", *remedy]))


def _remedy(term: Term, value: object, families: Mapping[Family, DType]) -> list[str]:
    """Suggest casts if only the representation of the numbers is wrong."""
    if isinstance(value, np.ma.MaskedArray):
        return ["fill its gaps: .filled(0)"]
    if isinstance(value, np.ndarray) and not value.dtype.isnative:
        return ["its bytes are in the other order: .astype(x.dtype.newbyteorder('='))"]
    if isinstance(value, np.ndarray | np.generic):
        return _cast(term, value, families)
    is_listed = isinstance(value, list | tuple) or (type(value) in _WEAK and term.dims is not None)
    return ["give an array: np.asarray(..., dtype)"] if is_listed else []


def _cast(term: Term, value: Array | np.generic, families: Mapping[Family, DType]) -> list[str]:
    dtype = from_numpy(value.dtype)
    if dtype in (None, DType.OTHER):
        return [_OTHERS.get(value.dtype.kind, "what may be given are bools, integers and floats")]
    element = term.element
    if dtype.is_float8 and isinstance(element, Family):
        return [f"no family has float8: declare it as {dtype.value}"]
    target = families.get(element, _USUAL.get(element)) if isinstance(element, Family) else element
    if target is None or not dtype_fault(term, dtype, families):
        return []
    of = "" if target is DType.BOOL else "np." if target.numpy.isbuiltin == 1 else "ml_dtypes."
    return [f"cast it: .astype({of}{target.numpy.name})"]


def _integers(signature: Signature, arrays: Sequence[Array]) -> dict[str, int]:
    """The values of the integer parameters that determine a dim which no shape binds."""
    pairs = zip(signature.inputs, arrays, strict=True)
    named = {term.name: int(array) for term, array in pairs if term.name in signature.integers}
    negative = next((name for name, size in named.items() if size < 0), None)
    if negative is not None:
        raise SignatureError(f"{negative} is {named[negative]}, and a size is never negative")
    return {name: named[name] for name in sizing_integers(signature)}


def _sizes_of_shapes(instance: Instance, arrays: Sequence[Array]) -> dict[str, int]:
    """The sizes that the shapes bind, whether or not all shapes fit."""
    sizes: dict[str, int] = {}
    for binding in bindings_of(instance):
        extent = arrays[binding.input].shape[binding.axis]
        try:
            sizes[binding.size] = (extent - int(binding.offset.evaluate(sizes))) // binding.factor
        except ZeroDivisionError:
            listing = ", ".join(f"{name}={size}" for name, size in sizes.items())
            raise SignatureError(f"a dim is divided by 0 where {listing}") from None
    return sizes


def _solve_sizes(signature: Signature, instance: Instance, arrays: Sequence[Array]) -> dict[str, int]:
    """The sizes; SignatureError unless every extent agrees with its dim."""
    sizes = _sizes_of_shapes(instance, arrays)
    for k, (value, array) in enumerate(zip(instance.inputs, arrays, strict=True)):
        agrees = not (value.scalar and value.name in sizes) or sizes[value.name] == int(array)
        if agrees and _fits(value.shape, array.shape, sizes):
            continue
        bindings = bindings_of_arrays(signature.inputs, arrays)
        others = [at for at, line in enumerate(bindings) if line and at != k]
        lines = [f"{signature.inputs[at].name}: {describe(arrays[at])} binds {bindings[at]}" for at in others]
        own = f" binds {bindings[k]} and" if bindings[k] else ""
        origin = int(array) if value.scalar else describe(array)
        fault = f"{value.name}: {origin}{own} does not fit {brief(signature.inputs[k])}"
        raise SignatureError("; ".join([*lines, fault]))
    return sizes


def _fits(shape: Sequence[Dim], extents: Sequence[int], sizes: Mapping[str, int]) -> bool:
    if any(sizes.get(name, 0) < 0 for dim in shape for name in dim.names):
        return False
    with suppress(ZeroDivisionError):
        return all(dim.evaluate(sizes) == extent for dim, extent in zip(shape, extents, strict=True))
    return False
