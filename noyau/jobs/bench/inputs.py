"""Inputs that candidates are timed on, several draws of the same shapes, and how they lie in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.errors import InputError
from noyau.hosts.numpy.dlpack import as_array, is_foreign
from noyau.signatures.instances import integers_of, usual_instance, usual_sizes
from noyau.signatures.types import Signature
from noyau.timing.sides import is_float

Array = np.ndarray
Arrays = tuple[Array, ...]
Sizes = dict[str, int]

DRAWS = 3
USUAL_CELLS = 1 << 20  # of the largest input, where nobody asks for sizes
_SHRINK = 2.0**-6  # how much smaller a number of a user's is made at most


@dataclass(frozen=True, slots=True)
class InputView:
    """The layout of one argument in memory: `order` are its axes from the outermost in memory to the innermost, `shape`
    is what it is expanded to, along the axes that are `repeated`."""

    order: tuple[int, ...]
    shape: tuple[int, ...]
    repeated: tuple[bool, ...]

    def argument(self, memory: Array) -> Array:
        turned = memory.transpose(np.argsort(self.order)) if self.order else memory
        return turned if turned.shape == self.shape else np.broadcast_to(turned, self.shape)

    def memory(self, argument: Array) -> Array:
        """The memory that an argument looks at: without what is repeated, in the order in which it lies."""
        once = argument[tuple(slice(0, 1) if each else slice(None) for each in self.repeated)]
        return once.transpose(self.order) if self.order else argument


Argument = Callable[[InputView, Any], Any]


@dataclass(frozen=True, slots=True)
class Views:
    """From packed arrays, which rotate in memory, to arguments: `fixed` has those that are no arrays."""

    views: tuple[InputView | None, ...]
    fixed: tuple[Any, ...]

    def memory_as_given(self, arrays: Sequence[Any], argument: Argument = InputView.argument) -> tuple[Any, ...]:
        """The arrays as they are given, without what is no array; `argument`: of a view of memory."""
        views = [view for view in self.views if view is not None]
        return tuple(argument(view, memory) for view, memory in zip(views, arrays, strict=True))

    def arguments(self, arrays: Sequence[Any], argument: Argument = InputView.argument) -> tuple[Any, ...]:
        """All arguments, in order."""
        arrays_left = iter(self.memory_as_given(arrays, argument))
        return tuple(f if v is None else next(arrays_left) for v, f in zip(self.views, self.fixed, strict=True))


@dataclass(frozen=True, slots=True)
class InputMaker:
    """Several draws of the arrays in memory, and their way to arguments. `notes`: what is not as it was given."""

    draws: tuple[Arrays, ...]
    views: Views
    notes: tuple[str, ...] = ()

    @property
    def draw_bytes(self) -> int:
        return sum(array.nbytes for array in self.draws[0])

    @property
    def first(self) -> tuple[Any, ...]:
        """The arguments of the first draw."""
        return self.views.arguments(self.draws[0])


def as_arguments(args: Any) -> Any:
    """The arguments of a call, or what makes them: one array or tensor is the only argument. InputError for neither."""
    if args is None or callable(args) or isinstance(args, tuple | list):
        return args
    if hasattr(args, "shape") or is_foreign(args):
        return (args,)
    raise InputError(f"args= is a tuple of the arguments of a call, or what makes them, and no {type(args).__name__}")


def draw_by(maker: Callable[[int], Sequence[Any]]) -> InputMaker:
    """Draws of a function of a seed. What is no array, or an array without axes, is that of the first draw in all."""
    first, *others = (tuple(map(_array, maker(seed))) for seed in range(DRAWS))
    return _draw(first, [tuple(map(_array, other)) for other in others])


def vary(arguments: Sequence[Any], seed: int) -> InputMaker:
    """Draws like the arrays that a user gives: in the others, floats are up to 1.6 % nearer to 0, for a call on what
    was seen before may be a look-up. Integers and bools, which may be indices and masks, stay."""
    first = tuple(map(_array, arguments))
    rng = np.random.default_rng(seed)
    return _draw(first, [tuple(_nearer(each, rng) for each in first) for _ in range(DRAWS - 1)])


def usual_numbers(signature: Signature, bound: Sizes, requested: Sizes, cells: int = USUAL_CELLS) -> Sizes:
    """A number for each size of a signature: a wanted one, or such that the largest input has about so many cells."""
    bound = {**bound, **integers_of(signature, requested)}
    instance = usual_instance(signature, bound)
    usual = round(cells ** (1 / max((1, *(len(value.shape) for value in instance.inputs)))))
    return {**dict.fromkeys(usual_sizes(instance, requested), usual), **requested}


def _draw(first: Sequence[Any], others: Sequence[Sequence[Any]]) -> InputMaker:
    views, notes = [], []
    for at, each in enumerate(first):
        view = _view_of(each) if isinstance(each, Array) else None
        if view is None and isinstance(each, Array):
            notes.append(f"argument {at} is packed: arrays with gaps are timed without them")
            view = InputView(tuple(range(each.ndim)), each.shape, (False,) * each.ndim)
        views.append(view)
    fixed = tuple(None if isinstance(each, Array) else each for each in first)
    every = [zip(first, draw, views, strict=True) for draw in (first, *others)]
    draws = [tuple(v.memory(each if f.ndim else f) for f, each, v in draw if v) for draw in every]
    if draws[0] and all(one.tobytes() == other.tobytes() for one, other in zip(draws[0], draws[1], strict=True)):
        notes.append("every call is given the same values: what remembers results is not found out")
    return InputMaker(tuple(draws), Views(tuple(views), fixed), tuple(notes))


def _view_of(array: Array) -> InputView | None:
    """The view that an argument is of packed memory, or None."""
    order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    view = InputView(tuple(order), array.shape, tuple(stride == 0 for stride in array.strides))
    return view if view.memory(array).flags.c_contiguous else None


def _array(argument: Any) -> Any:
    """An argument as an array where it is one, of whatever package, or a number of NumPy's."""
    return as_array(argument) if is_foreign(argument) else argument


def _nearer(argument: Any, rng: np.random.Generator) -> Any:
    if isinstance(argument, Array) and argument.ndim and is_float(argument.dtype):
        return argument * np.asarray(1 - _SHRINK * rng.random(argument.shape), argument.dtype)
    return argument
