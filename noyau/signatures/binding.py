"""The arguments of a call: each fits its term, or the message shows what the others bind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import SignatureError
from noyau.ir.dims import Dim
from noyau.signatures.instances import bindings_of, dtype_fault, instance_of, rank_fault, shapes_of, sizing_integers
from noyau.signatures.types import Family, Instance, Rest, Signature, Term, brief

Array = np.ndarray
Fitting = Sequence[tuple[Term, Array]]  # the arguments that fit, with their terms
_WEAK = {bool: DType.BOOL, int: DType.I64, float: DType.F64}  # Python numbers, and their dtypes where nothing else says
_OTHERS = {
    "c": "complex numbers are not computed with: give .real and .imag",
    "O": "its cells are objects: .astype(np.float32) makes them numbers",
}
_USUAL = {Family.FLOAT: DType.F32, Family.INT: DType.I64}  # what another dtype is cast to
_NONE: Mapping[Family, DType] = MappingProxyType({})
TAKES = {"float": (int, float), "int": (int,), "uint": (int,), "bool": (bool,)}


@dataclass(frozen=True, slots=True)
class Bound:
    """The arguments of one call, in the order of the signature: scalars are arrays of rank 0.

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
    """Bind arguments to a signature. `known`: sizes that no shape gives. SignatureError for the first misfit."""
    try:
        arrays = _admit(signature.inputs, arguments)
        numbers = {**known, **_integers(signature, arrays)}
        parameters = tuple(sorted((name, size) for name, size in numbers.items() if name in signature.sizes))
        ranks = tuple(array.ndim for array in arrays)
        instance = instance_of(signature, tuple(map(dtype_of, arrays)), ranks, parameters)
        sizes = _solve_sizes(signature, instance, arrays)
        return Bound(instance, arrays, sizes, tuple(shapes_of(instance.outputs, sizes)))
    except SignatureError as error:
        raise SignatureError(f"{called}: {error}") from None


def describe(argument: object) -> str:
    """An argument as a signature would have it: `f32[4, 41]`, `f32`, `complex64[3]`, `0.5`, `a list`."""
    if isinstance(argument, np.ma.MaskedArray):
        return "a masked array"
    if isinstance(argument, np.ndarray | np.generic):
        own = argument.dtype.name if argument.dtype.isnative else argument.dtype.str
        name = own if from_numpy(argument.dtype) in (None, DType.OTHER) else dtype_of(np.asarray(argument)).value
        return f"{name}{list(argument.shape)}" if isinstance(argument, np.ndarray) else name
    return repr(argument) if type(argument) in _WEAK else kind_of(argument)


def kind_of(argument: object) -> str:
    """The type of an argument in words: `a list`, `an int`."""
    kind = type(argument).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def dtype_of(array: Array) -> DType:
    """The DType of an array that was let in."""
    dtype = from_numpy(array.dtype)
    assert dtype is not None
    return dtype


def bindings_of_arrays(terms: Sequence[Term], arrays: Sequence[Array]) -> list[str]:
    """For each argument that fits so far, what it binds: `rows=4, n=41`, `batch=(2, 3)`, `float=f32`; or nothing."""
    instance = instance_of(Signature(tuple(terms), ()), tuple(map(dtype_of, arrays)), tuple(a.ndim for a in arrays))
    bindings: list[dict[str, object]] = [{} for _ in terms]
    contested: set[Family | Rest] = set()
    for k, (term, array) in enumerate(zip(terms, arrays, strict=True)):
        if isinstance(term.element, Family) and term.element not in contested:
            bindings[k][term.element.value] = dtype_of(array).value
        if term.rest is not None and term.rest not in contested:
            first = (term.dims or ()).index(term.rest)
            bindings[k][term.rest.name] = array.shape[first : first + array.ndim - len(term.fixed)]
        contested |= {part for part in (term.element, term.rest) if isinstance(part, Family | Rest)}
    owners = {binding.size: binding.input for binding in bindings_of(instance)}
    for name, size in _sizes(instance, arrays).items():
        if any(name in dim.names for dim in terms[owners[name]].fixed):
            bindings[owners[name]][name] = size
    return [", ".join(f"{name}={value}" for name, value in each.items()) for each in bindings]


def _admit(terms: Sequence[Term], arguments: Sequence[object]) -> tuple[Array, ...]:
    """The arguments as arrays, each of its term's dtype and rank."""
    families, axes, fitting = dict[Family, DType](), dict[str, tuple[Dim, ...]](), list[tuple[Term, Array]]()
    pairs = list(zip(terms, arguments, strict=True))
    for term, value in [pair for pair in pairs if not _is_weak(*pair)]:
        array = _array(value)
        if array is None or dtype_fault(term, dtype_of(array), families) or rank_fault(term, array.ndim, axes):
            raise _misfit(term, value, fitting, families)
        fitting.append((term, array))
        if isinstance(term.element, Family):
            families[term.element] = dtype_of(array)
        if term.rest is not None:
            axes.setdefault(term.rest.name, (Dim.of(0),) * (array.ndim - len(term.fixed)))
    arrays = iter([array for _, array in fitting])
    return tuple(_scalar(*pair, families, fitting) if _is_weak(*pair) else next(arrays) for pair in pairs)


def _is_weak(term: Term, value: object) -> bool:
    return term.dims is None and type(value) in _WEAK


def _array(value: object) -> Array | None:
    """The argument as an array of one of noyau's dtypes, or None."""
    if not isinstance(value, np.ndarray | np.generic) or isinstance(value, np.ma.MaskedArray):
        return None
    array = np.asarray(value)
    return array if from_numpy(array.dtype) not in (None, DType.OTHER) else None


def _scalar(term: Term, value: object, families: dict[Family, DType], fitting: Fitting) -> Array:
    """A Python number in the dtype of its term, as NumPy takes it beside arrays of that dtype."""
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
    """Name the casts that would do where only the representation of the numbers is wrong."""
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
    """The integer parameters that give a dim which no shape gives."""
    pairs = zip(signature.inputs, arrays, strict=True)
    named = {term.name: int(array) for term, array in pairs if term.name in signature.integers}
    negative = next((name for name, size in named.items() if size < 0), None)
    if negative is not None:
        raise SignatureError(f"{negative} is {named[negative]}, and a size is never negative")
    return {name: named[name] for name in sizing_integers(signature)}


def _sizes(instance: Instance, arrays: Sequence[Array]) -> dict[str, int]:
    """The sizes that the shapes give, whether or not all of them fit."""
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
    """The sizes, once every extent is what its dim says."""
    sizes = _sizes(instance, arrays)
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
