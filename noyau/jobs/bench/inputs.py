"""Inputs for timing candidates: several draws of the same shapes, and their layouts in memory."""

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
USUAL_CELLS = 1 << 20  # of the largest input, if no sizes are given
_SHRINK = 2.0**-6  # largest relative change of a user's number towards 0


@dataclass(frozen=True, slots=True)
class InputView:
    """The layout of one argument in memory. `order`: its axes from the outermost in memory to the innermost; `shape`:
    after broadcasting along the `repeated` axes."""

    order: tuple[int, ...]
    shape: tuple[int, ...]
    repeated: tuple[bool, ...]

    def argument(self, memory: Array) -> Array:
        turned = memory.transpose(np.argsort(self.order)) if self.order else memory
        return turned if turned.shape == self.shape else np.broadcast_to(turned, self.shape)

    def memory(self, argument: Array) -> Array:
        """The packed array of which an argument is a view: without repetition, with axes in memory order."""
        once = argument[tuple(slice(0, 1) if each else slice(None) for each in self.repeated)]
        return once.transpose(self.order) if self.order else argument


Argument = Callable[[InputView, Any], Any]


@dataclass(frozen=True, slots=True)
class Views:
    """The views that make arguments of packed arrays, which rotate in memory; `fixed`: arguments that are no arrays."""

    views: tuple[InputView | None, ...]
    fixed: tuple[Any, ...]

    def memory_as_given(self, arrays: Sequence[Any], argument: Argument = InputView.argument) -> tuple[Any, ...]:
        """The array arguments as views of packed arrays; `argument`: makes an argument of a view and its memory."""
        views = [view for view in self.views if view is not None]
        return tuple(argument(view, memory) for view, memory in zip(views, arrays, strict=True))

    def arguments(self, arrays: Sequence[Any], argument: Argument = InputView.argument) -> tuple[Any, ...]:
        arrays_left = iter(self.memory_as_given(arrays, argument))
        return tuple(f if v is None else next(arrays_left) for v, f in zip(self.views, self.fixed, strict=True))


@dataclass(frozen=True, slots=True)
class InputMaker:
    """Several draws of the arrays in memory, and the views that make arguments. `notes`: deviations from the user's."""

    draws: tuple[Arrays, ...]
    views: Views
    notes: tuple[str, ...] = ()

    @property
    def draw_bytes(self) -> int:
        return sum(array.nbytes for array in self.draws[0])

    @property
    def first(self) -> tuple[Any, ...]:
        return self.views.arguments(self.draws[0])


def as_arguments(args: Any) -> Any:
    """The arguments of a call, or their maker; a lone array or tensor is the only argument. InputError for others."""
    if args is None or callable(args) or isinstance(args, tuple | list):
        return args
    if hasattr(args, "shape") or is_foreign(args):
        return (args,)
    raise InputError(f"args= is a tuple of the arguments of a call, or what makes them, and no {type(args).__name__}")


def draw_by(maker: Callable[[int], Sequence[Any]]) -> InputMaker:
    """Draws by a function of a seed. Arguments that are no arrays, or have no axes, are the first draw's in all."""
    first, *others = (tuple(map(_array, maker(seed))) for seed in range(DRAWS))
    return _draw(first, [tuple(map(_array, other)) for other in others])


def vary(arguments: Sequence[Any], seed: int) -> InputMaker:
    """Draws like a user's arrays: the first is theirs, and in the others floats are up to 1.6 % nearer to 0, so that a
    candidate cannot look up earlier results. Integers and bools, which may be indices and masks, stay."""
    first = tuple(map(_array, arguments))
    rng = np.random.default_rng(seed)
    return _draw(first, [tuple(_nearer(each, rng) for each in first) for _ in range(DRAWS - 1)])


def usual_numbers(signature: Signature, bound: Sizes, requested: Sizes, cells: int = USUAL_CELLS) -> Sizes:
    """A number for each size of a signature: the requested one, or one that gives the largest input about `cells`."""
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
    """The view of packed memory that equals the argument; None if its memory has gaps."""
    order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    view = InputView(tuple(order), array.shape, tuple(stride == 0 for stride in array.strides))
    return view if view.memory(array).flags.c_contiguous else None


def _array(argument: Any) -> Any:
    """An argument, with an array of another package as a NumPy array."""
    return as_array(argument) if is_foreign(argument) else argument


def _nearer(argument: Any, rng: np.random.Generator) -> Any:
    if isinstance(argument, Array) and argument.ndim and is_float(argument.dtype):
        return argument * np.asarray(1 - _SHRINK * rng.random(argument.shape), argument.dtype)
    return argument
