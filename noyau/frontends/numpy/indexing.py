"""Slices, None, Ellipsis, integers and arrays of integers between brackets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.arrays import FUNCTIONS, Traced
from noyau.frontends.numpy.tape import Tape
from noyau.frontends.numpy.ufuncs import mapped, traced
from noyau.ir.dims import Dim, index_name, never_negative
from noyau.ir.graph import Gather, Lookup, Node
from noyau.ir.symbols import Size, dim_of


@dataclass(slots=True)
class _Read:
    """The result of a key so far: its shape, and for each axis of the array where it is read."""

    shape: list[Dim] = field(default_factory=list)
    index: list[Dim | Lookup] = field(default_factory=list)

    def next_index(self) -> Dim:
        return Dim.of(index_name(len(self.shape)))


def getitem(array: Traced, key: Any) -> Traced:
    """The part of an array that a key names. UnsupportedError for a mask, whose result has no shape beforehand."""
    tape, value, read = array.tape, array.node, _Read()
    looked_up: Node | None = None
    for each in _filled(key if isinstance(key, tuple) else (key,), len(value.shape)):
        axis = len(read.index)
        match each:
            case None:
                read.shape.append(Dim.of(1))
            case slice():
                _slice(tape, read, each, value.shape[axis])
            case Traced() | np.ndarray() | list():
                if looked_up is not None:
                    raise UnsupportedError("two arrays of indices in one pair of brackets are not traced")
                looked_up = _indices(tape, each, value.shape[axis])
                at = tuple(Dim.of(index_name(len(read.shape) + k)) for k in range(len(looked_up.shape)))
                read.index.append(Lookup(1, at))
                read.shape.extend(looked_up.shape)
            case _:
                read.index.append(_place(tape, each, value.shape[axis]))
    shape = tuple(read.shape)
    if looked_up is None:
        return Traced(tape, tape.view(value, shape, [dim for dim in read.index if isinstance(dim, Dim)]))
    return Traced(tape, tape.emit(Gather(tuple(read.index)), [value, looked_up], value.dtype, shape))


def take(array: Traced, indices: Any, axis: int | None = None, **said: Any) -> Traced:
    """np.take along an axis."""
    if said:
        raise UnsupportedError(f"np.take is traced without {next(iter(said))}=")
    if axis is None:
        array, axis = FUNCTIONS["ravel"](array), 0
    key = (slice(None),) * (axis % array.ndim)
    found = traced(array.tape, indices)
    return getitem(array, (*key, found))


def _filled(key: Sequence[Any], rank: int) -> list[Any]:
    """The key with one entry for each axis: what Ellipsis stands for is slices of everything."""
    dots = [at for at, each in enumerate(key) if each is Ellipsis]
    used = sum(each is not None and each is not Ellipsis for each in key)
    if len(dots) > 1 or used > rank:
        raise UnsupportedError(f"{used} indices are given for an array of {rank} axes")
    rest = [slice(None)] * (rank - used)
    at = dots[0] if dots else len(key)
    return [*key[:at], *rest, *key[at + 1 :]]


def _slice(tape: Tape, read: _Read, key: slice, extent: Dim) -> None:
    step = 1 if key.step is None else key.step
    if not isinstance(step, int) or step == 0:
        raise UnsupportedError("the step of a slice is an integer that is known")
    if step > 0:
        start, stop = _end(tape, key.start, extent, Dim.of(0)), _end(tape, key.stop, extent, extent)
        tape.demand_at_most(start, stop)
        tape.demand_at_most(stop, extent)
        length = (stop - start + (step - 1)) // step
    else:
        start, stop = _end(tape, key.start, extent, extent - 1), _end(tape, key.stop, extent, Dim.of(-1))
        tape.demand_at_most(stop, start)
        tape.demand_at_most(start + 1, extent)
        length = (start - stop + (-step - 1)) // -step
    read.index.append(read.next_index() * step + start)
    read.shape.append(length)


def _end(tape: Tape, given: Any, extent: Dim, otherwise: Dim) -> Dim:
    """An end of a slice: one below 0 counts from the end."""
    if given is None:
        return otherwise
    if not isinstance(given, int | Size | np.integer):
        raise UnsupportedError(f"an end of a slice is {given!r}; it is an integer or a size")
    dim = dim_of(int(given) if isinstance(given, np.integer) else given)
    if not never_negative(dim) and never_negative(-dim):
        return extent + dim
    tape.demand_at_most(0, dim)  # where a size makes it negative, the call is refused
    return dim


def _place(tape: Tape, key: Any, extent: Dim) -> Dim:
    if isinstance(key, bool | np.bool_) or not isinstance(key, int | Size | np.integer):
        raise UnsupportedError(f"{key!r} is no index that is traced")
    place = _end(tape, key, extent, extent)
    tape.demand_at_most(place + 1, extent)
    return place


def _indices(tape: Tape, key: Any, extent: Dim) -> Node:
    """Indices as they are looked up: those below 0 count from the end."""
    node = traced(tape, np.asarray(key) if isinstance(key, list) else key).node
    if node.dtype is DType.BOOL:
        raise UnsupportedError("a mask of bools has a result of unknown shape; use np.where")
    if node.dtype.is_float:
        raise UnsupportedError(f"an array of {node.dtype.value} is no index")
    wide = tape.cast(node, DType.I64)
    if node.dtype.kind == "uint":
        return wide
    below = mapped(tape, "less", wide, tape.constant(0, DType.I64))
    return mapped(tape, "where", below, mapped(tape, "add", wide, tape.size(extent, DType.I64)), wide)


FUNCTIONS.update({"getitem": getitem, "take": take})
