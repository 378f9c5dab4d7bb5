"""Random inputs from a signature alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import SignatureError
from noyau.ir.dims import Dim
from noyau.ir.sizes import plan
from noyau.signatures.instances import instance_of, shapes_of, sizing_integers
from noyau.signatures.types import Family, Instance, Signature, Term, Value, spell_dim

Maker = Callable[..., Any]
USUAL_DTYPES = {Family.FLOAT: DType.F32, Family.INT: DType.I64, Family.ANY: DType.F32}
USUAL_SIZES = (5, 3, 7, 2)  # small primes, of the sizes in turn
_MOST_DOUBLINGS = 10  # of one size at once, until a result has more cells: `f32[n] -> f32[n // 1000]`
_REACH = 100  # of integers, which are drawn from [-100, 100]


def usual_instance(
    signature: Signature,
    known: Mapping[str, int],
    families: Mapping[Family, DType] = USUAL_DTYPES,
    axes: int = 1,
) -> Instance:
    """The instance with a dtype for each family, and so many axes for each Rest; integers that give a dim are among
    `known`."""
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
    """By how much the extents of the results, all together, are below 1 at these sizes; what these do not tell is
    not."""
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


def make(
    instance: Instance, sizes: Mapping[str, int], integers: Mapping[str, int], rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """An array for each input: floats standard normal, integers within 100 of 0, bools even. `integers`: the values of
    parameters that give a dim. SignatureError where an extent would be negative."""
    shapes = shapes_of(instance.inputs, sizes)
    return tuple(_array(*each, integers, rng) for each in zip(instance.inputs, shapes, strict=True))


def draw_inputs(
    maker: Callable[..., Any],
    rng: np.random.Generator,
    sizes: Mapping[str, int],
    parameters: Sequence[str],
    called: str,
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
        return _in_order(result, parameters, called)
    arrays = tuple(result) if isinstance(result, tuple | list) else (result,)
    if len(arrays) != len(parameters):
        raise SignatureError(f"inputs= of {called} gives {len(arrays)} inputs, and it takes {', '.join(parameters)}")
    return arrays


def sizes_of(maker: Callable[..., Any]) -> list[str]:
    """The sizes that a maker of inputs takes."""
    return list(inspect.signature(maker).parameters)[1:]


def in_dtypes(arrays: Sequence[Any], signature: Signature, dtypes: Sequence[DType]) -> tuple[Any, ...]:
    """Cast the arrays of a maker to dtypes of a family of floats; the maker gives one of them."""
    alike = zip(arrays, signature.inputs, dtypes, strict=True)
    return tuple(
        np.asarray(array).astype(dtype.numpy) if term.element is Family.FLOAT else array for array, term, dtype in alike
    )


def _in_order(arrays: Mapping[str, Any], parameters: Sequence[str], called: str) -> tuple[Any, ...]:
    if set(arrays) != set(parameters):
        fault = f"names {', '.join(map(str, arrays))}, and it takes {', '.join(parameters)}"
        raise SignatureError(f"inputs= of {called} {fault}")
    return tuple(arrays[name] for name in parameters)


def _dtype(term: Term, families: Mapping[Family, DType]) -> DType:
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
            return rng.integers(0 if kind == "uint" else -_REACH, _REACH, shape, endpoint=True).astype(
                value.dtype.numpy
            )
        case _:
            raise SignatureError(f"{value.name}: {value.dtype.value} cannot be made up")


def maker_text(signature: Signature) -> str:
    """Suggest an argument that makes inputs: `inputs=lambda rng, n=64: (rng.standard_normal(n).astype("float32"),)`,
    to be changed as it must."""
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
