"""Calls of an op: through a door where a call like it came before, else the whole way."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from itertools import count
from math import inf
from typing import Any, TypeAlias

import numpy as np

from noyau.hosts.numpy.c_library import library
from noyau.hosts.numpy.dlpack import as_array, leading, return_like, speaks
from noyau.hosts.numpy.fast_calls import MISS, in_caller_form, write
from noyau.kernels.programs.generate import constants_key, fit_layouts, specialization_of
from noyau.kernels.reference import Description, as_signed, runs_as_written
from noyau.ops.dispatch.choice import Selection, Selector
from noyau.ops.dispatch.explanation import Explanation, explained
from noyau.ops.dispatch.fast_entries import Entry, entry, run
from noyau.signatures.binding import Bound, bind
from noyau.signatures.types import Signature

Array = np.ndarray
Entries: TypeAlias = dict[int, tuple[Selection, Entry | None]]  # a door for each choice, by its id
DOORS = 8  # kept for the same constants; the last one that was made comes first


class ReferenceWarning(UserWarning):
    """An op runs as its reference, for no kernel of it may run."""


class Calls:
    """The calls of an op with a signature. `plain`: the ways of earlier calls that gave no constants, the last first;
    `others`: those that gave some, by what they gave; `tensors`: the calls on tensors of torch, once there was one."""

    tensors: Any = None

    def __init__(self, description: Description, signature: Signature) -> None:
        self.description, self.signature = description, signature
        self.choosing, self.token = Selector(description), new_token(description.name)
        self.plain: tuple[Entry, ...] = ()
        self.others: dict[Any, tuple[Entry, ...]] = {}
        self.made: Entries = {}
        self.unwarned = threading.Lock()  # whoever takes it warns

    def forget(self) -> None:
        """Decide anew at the next call: winners were recorded, or a kernel was checked."""
        self.choosing.forget()
        self.made, self.others, self.plain = {}, {}, ()
        if self.tensors is not None:
            self.tensors.forget()

    def again(self, args: tuple[Any, ...], constants: Mapping[str, Any], out: Any) -> Any:
        """The results by the way of an earlier call that gave these constants, or MISS."""
        if not runs_as_written():
            for door in self.others.get(constants_key(constants), ()) if constants else self.plain:
                made = door(args, out)
                if made is not MISS:
                    return made
        return MISS

    def whole(self, args: Sequence[Any], constants: Mapping[str, Any], sizes: Mapping[str, int], out: Any) -> Any:
        """The results for arguments in order, whatever they are; in the kind of array of the first one that is another
        package's. `constants` are those that are given. SignatureError where an argument does not fit, InputError where
        `out` does not."""
        like, names = leading(args), self.description.reference.parameters
        given = tuple(as_given(each, name) for each, name in zip(args, names, strict=True))
        made = self.again(given, constants, out)
        if made is MISS:
            made = self.anew(given, constants, sizes, out)
        if like is None or out is not None:
            return made
        return tuple(return_like(each, like) for each in made) if isinstance(made, tuple) else return_like(made, like)

    def explain(self, args: Sequence[Any], constants: Mapping[str, Any], sizes: Mapping[str, int]) -> Explanation:
        """Explain what a call with these would run."""
        names = self.description.reference.parameters
        given = [as_given(each, name) for each, name in zip(args, names, strict=True)]
        bound = bind(self.signature, given, sizes, self.description.name)
        chosen = self.choosing.choose(specialization_of(self.signature, bound, self.all(constants)))
        return explained(self.choosing, chosen, _largest(bound))

    def anew(self, arguments: Sequence[Any], constants: Mapping[str, Any], sizes: Mapping[str, int], out: Any) -> Any:
        """The results for NumPy's arrays and numbers, of which nothing is known yet."""
        bound, known = bind(self.signature, arguments, sizes, self.description.name), self.all(constants)
        if runs_as_written():
            return self.finished(self.written(bound, known), bound, out)
        wanted, kept = specialization_of(self.signature, bound, known), self.made
        chosen = self.choosing.choose(wanted)
        made = self.through_door(chosen, kept, constants, tuple(arguments), out)
        if made is not MISS:
            return made
        choice = chosen.at(_largest(bound))
        if choice.made is None:
            made = self.finished(self.written(bound, known), bound, out)
            self.warn(chosen)
            return made
        return self.finished(run(choice, wanted, fit_layouts(bound.arrays, wanted.layouts)), bound, out)

    def all(self, constants: Mapping[str, Any]) -> Mapping[str, Any]:
        """Every constant, those at their defaults too."""
        return {**self.description.reference.constants, **constants}

    def through_door(
        self, chosen: Selection, kept: Entries, constants: Mapping[str, Any], arguments: tuple[Any, ...], out: Any
    ) -> Any:
        """The results by a door that is kept from now on, or MISS. `kept`: the doors that there were when it was
        chosen; where they were forgotten meanwhile, so is this one."""
        door = self.door(chosen, kept)
        made = MISS if door is None else door(arguments, out)
        if made is MISS or chosen.until < inf or id(chosen) not in kept or kept is not self.made:
            return made
        if constants:
            key = constants_key(constants)
            self.others[key] = _first(door, self.others.get(key, ()))
        else:
            self.plain = _first(door, self.plain)
        if kept is not self.made:  # between the question above and now
            self.others, self.plain = {}, ()
        return made

    def door(self, chosen: Selection, kept: Entries) -> Entry | None:
        """The door to what was chosen, the same one for all threads; kept unless there was no room for its C."""
        found = kept.get(id(chosen))
        if found is None:
            found = chosen, entry(self.description.name, self.signature, chosen)
            if not library.awaits_room():
                found = kept.setdefault(id(chosen), found)
        return found[1]

    def written(self, bound: Bound, constants: Mapping[str, Any]) -> list[Array]:
        """The results of the reference as it is written."""
        results = self.description.reference.run(bound.instance, bound.arrays, constants)
        pairs = zip(results, bound.instance.outputs, strict=True)
        return [as_signed(result, value, self.description.name) for result, value in pairs]

    def finished(self, results: Sequence[Array], bound: Bound, out: Any) -> Any:
        """Results as the reference returns them: one, or a tuple; scalars as NumPy's; written to `out` if given."""
        made = in_caller_form(results, [value.scalar for value in bound.instance.outputs])
        return made if out is None else write(self.description.name, made, out, bound.arrays)

    def warn(self, chosen: Selection) -> None:
        """Once: that the reference runs, and why; unless it is the fastest."""
        if chosen.rejected and self.unwarned.acquire(blocking=False):
            kernels: dict[str, list[str]] = {}
            for kernel, reason in chosen.rejected:
                kernels.setdefault(reason, []).append(kernel)
            warn(self.description, [f"{', '.join(names)}: {reason}" for reason, names in kernels.items()])


def _first(door: Entry | None, doors: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The doors that are kept, this one the first of them."""
    return (*([door] if door else []), *(each for each in doors if each is not door))[:DOORS]


def warn(description: Description, reasons: Sequence[str], level: int = 6) -> None:
    """Say that the reference runs, and why, at the line of the call: so many frames up."""
    message = f"{description.name} ({description.place}) runs as its reference: {'; '.join(reasons)}"
    warnings.warn(message, ReferenceWarning, stacklevel=level)


def _largest(bound: Bound) -> int:
    """The cells of the largest array of a call."""
    return max((array.size for array in bound.arrays), default=0)


def as_given(given: Any, name: str) -> Any:
    """An argument as NumPy has it; what speaks no protocol of arrays is left to the signature to refuse."""
    if isinstance(given, np.ndarray | np.generic | bool | int | float) or not speaks(given):
        return given
    return as_array(given, name)


_NUMBERS = count()


def new_token(name: str) -> str:
    """A token that tells a description of an op from all others in this process."""
    return f"{name} {next(_NUMBERS)}"
