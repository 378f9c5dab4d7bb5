"""Arrays that record every access to them: what a kernel in Python does is replayed in the shadow, in order."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from noyau.errors import FindingKind, UnsupportedError
from noyau.sanitizer.compiled_numbers import calls_view
from noyau.sanitizer.engine import Shadow, cells_of, part_bytes, root_of
from noyau.sanitizer.records import ACCESSES, Access, Site, WatchedMemory

READ, WRITE, ATOMIC, SAME = map(int, (Access.READ, Access.WRITE, Access.ATOMIC, Access.SAME_WRITE))
NOTES = 1 << 16  # int64 that wait before they are replayed
INTEGERS = (int, np.integer)
_VIEWING = frozenset({"reshape", "ravel", "transpose", "swapaxes", "squeeze", "diagonal"})
_FILLING = frozenset({"fill", "sort", "partition", "put", "itemset"})
_FILLED = {"copyto": 1, "fill_diagonal": 1, "put": 1, "place": 1, "putmask": 1}


class TooManyError(Exception):
    """A run made more accesses than its limit; the observations until then count."""


class Recorder:
    """The recorder of accesses to recording arrays. `owner`: the running one; `most`: accesses before TooManyError."""

    def __init__(self, most: int = 1 << 62, shadow: Shadow | None = None) -> None:
        self.shadow, self.most, self.owner = shadow or Shadow(), most, 0
        self.notes: list[int] = []  # four per access
        self.memories: dict[int, WatchedMemory] = {}
        self.unset: set[int] = set()  # memories without values at their start
        self.sites: list[Site] = []
        self.files: set[str] = set()  # files whose lines are sites
        self._sites: dict[tuple[str, int], int] = {}
        self.placed: dict[tuple[int, int], int] = {}  # the sites of instructions of watched files, by code and offset
        self._codes: list[CodeType] = []  # kept alive, so that no other code gets their id
        self.signed: set[tuple[str, int]] = set()  # lines with an index that is a negative constant
        self.unit = 0  # a multiple of a cell's bytes, for memory accessed as several dtypes
        self.roots: dict[int, Recording] = {}  # arrays that have views, by id

    # Sites, regions and accesses.

    def site(self, frame: FrameType | None) -> int:
        """Return the number of the innermost line of a watched file."""
        while frame is not None and frame.f_code.co_filename not in self.files:
            frame = frame.f_back
        return self.site_at("", 0) if frame is None else self.site_at(frame.f_code.co_filename, frame.f_lineno)

    def site_of(self, frame: FrameType) -> Site:
        """Return the innermost line of a watched file."""
        return self.sites[self.site(frame)]

    def place(self, frame: FrameType) -> int:
        """Return the site of a frame's current instruction, and cache it in `placed`."""
        number, code = self.site(frame), frame.f_code
        if code.co_filename in self.files:
            self._codes.append(code)
            self.placed[id(code), frame.f_lasti] = number
        return number

    def site_at(self, file: str, line: int) -> int:
        if (file, line) not in self._sites:
            self._sites[file, line] = len(self.sites)
            self.sites.append(Site.of(file, line))
        return self._sites[file, line]

    def region(self, *, serial: bool) -> None:
        """Begin a new region; see engine.h."""
        self.owner = 0
        self.notes.extend((-1, int(serial), 0, 0))

    def touch_all(self, memory: int, cells: np.ndarray, access: int, site: int) -> None:
        """Record accesses to these cells, in order."""
        rows = np.empty((cells.size, 4), np.int64)
        rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] = ACCESSES * memory + access, cells.ravel(), self.owner, site
        self.notes.extend(rows.ravel().tolist())
        if len(self.notes) >= NOTES:
            self.play()

    def outside(
        self, kind: FindingKind, memory: int, access: int, site: int, index: int, axis: int, extent: int
    ) -> None:
        """Record an index outside its axis."""
        self.play()
        self.shadow.enter(self.owner)
        self.shadow.note(kind, memory, Access(access), site, index=index, axis=axis, extent=extent)

    def choose_unit(self, function: Any, values: Sequence[Any]) -> None:
        """Choose cells that divide all elements as which a function, called with these values, may access memory."""
        arrays = [each for each in values if isinstance(each, np.ndarray)]
        pairs = [(root_of(each).dtype, each.dtype) for each in arrays]
        parts = [part_bytes(each) for pair in pairs if pair[0] != pair[1] for each in pair]
        self.unit = 1 if calls_view(function) else math.gcd(*parts)

    def part_of_root(self, value: np.ndarray, name: str, *, is_set: bool = True) -> Recording:
        """Return an array in the memory of its root, which is recorded once."""
        root = root_of(value)
        if id(root) not in self.roots:
            self.roots[id(root)] = self.array(root, name, is_set=is_set)
        whole = self.roots[id(root)]
        unit = root.itemsize // whole.width
        return whole if value is root else whole.part(value, cells_of(value, root, unit), value.itemsize // unit)

    def written_elements(self, memory: int) -> np.ndarray:
        """Return a mask of the elements of a memory of which some owner wrote a part."""
        size, width = math.prod(self.memories[memory].shape), self.memories[memory].width
        mask: np.ndarray = self.shadow.written_cells(memory, size * width)
        written: np.ndarray = mask.reshape(size, width).max(axis=1, initial=False)
        return written

    def play(self) -> None:
        """Replay the notes in the shadow. TooManyError past the limit."""
        self.shadow.replay(array("q", self.notes), len(self.notes) // 4)
        self.notes = []
        if self.shadow.accesses > self.most:
            raise TooManyError

    def array(self, data: np.ndarray, name: str, *, is_set: bool = True) -> Recording:
        """Record an array, in a memory of its own."""
        width = max(1, data.itemsize // math.gcd(self.unit, part_bytes(data.dtype)))
        memory = self.shadow.memory(data.size * width, is_set=is_set)
        places = [(place * width // data.itemsize, of) for of, (_, place, *_) in (data.dtype.fields or {}).items()]
        self.memories[memory] = WatchedMemory(name, data.shape, width=width, fields=tuple(sorted(places)))
        if not is_set:
            self.unset.add(memory)
        return Recording(self, memory, data, width * np.arange(data.size).reshape(data.shape), width)


class Recording(NDArrayOperatorsMixin):
    """An array that records its reads and writes, and else acts like a NumPy array, except that an index outside an
    axis is recorded, read as 0 and written nowhere. `cells`: the first cell of each element; `width`: the number of
    cells of an element."""

    __slots__ = (
        "_fields", "cells", "data", "length", "memory", "noted", "recorder", "shape", "start", "step", "steps", "width",
    )  # fmt: skip
    __array_priority__ = 1000

    def __init__(self, recorder: Recorder, memory: int, data: np.ndarray, cells: np.ndarray, width: int = 1) -> None:
        self.recorder, self.memory, self.data, self.cells, self.width = recorder, memory, data, cells, width
        self.shape, self.noted, self._fields = data.shape, ACCESSES * memory, dict[str, Recording]()
        first, axes = (0,) * cells.ndim, range(cells.ndim if cells.size else 0)
        self.start = cells.item(first) if cells.size else 0
        seconds = ((*first[:axis], min(1, cells.shape[axis] - 1), *first[axis + 1 :]) for axis in axes)
        self.steps = tuple([cells.item(each) - self.start for each in seconds]) if cells.size else first
        self.length: int = data.shape[0] if data.ndim == 1 else 0  # for the fast path
        self.step: int = self.steps[0] if data.ndim == 1 else 0

    # One cell, or some.

    def cell(self, key: Any) -> int:
        """Return the cell of a key with one integer per axis, all within; -1 for other keys."""
        kind, shape = type(key), self.shape
        if kind is int:
            return self.start + key * self.step if 0 <= key < self.length else -1
        if kind is not tuple:
            return self.cell(int(key)) if isinstance(key, np.integer) else -1
        if len(key) != len(shape):
            return -1
        cell = self.start
        for index, extent, step in zip(key, shape, self.steps):  # noqa: B905  of equal lengths; the fast path
            if not (type(index) is int or isinstance(index, np.integer)) or not 0 <= index < extent:
                return -1
            cell += int(index) * step
        return cell

    def __getitem__(self, key: Any) -> Any:
        recorder, frame = self.recorder, sys._getframe(1)
        site = recorder.placed.get((id(frame.f_code), frame.f_lasti))
        if site is None:
            site = recorder.place(frame)
        cell = self.start + key * self.step if type(key) is int and 0 <= key < self.length else self.cell(key)
        if cell < 0 or self.width > 1:
            return self.pick(key, site)
        notes = recorder.notes
        notes += (self.noted, cell, recorder.owner, site)
        if len(notes) >= NOTES:
            recorder.play()
        return self.data[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        recorder, frame = self.recorder, sys._getframe(1)
        site = recorder.placed.get((id(frame.f_code), frame.f_lasti))
        if site is None:
            site = recorder.place(frame)
        cell = self.start + key * self.step if type(key) is int and 0 <= key < self.length else self.cell(key)
        if cell < 0 or self.width > 1 or isinstance(value, Recording | ArrayRecord):
            self.put(key, value, site)
            return
        data, before = self.data, self.data[key]
        _set(data, key, value)
        after = data[key]
        is_same = before == after or (before != before and after != after)  # noqa: PLR0124  NaN stays NaN
        notes = recorder.notes
        notes += (self.noted + (SAME if is_same else WRITE), cell, recorder.owner, site)
        if len(notes) >= NOTES:
            recorder.play()

    def pick(self, key: Any, site: int) -> Any:
        """Return `self[key]`: a number or a copy, whose cells are read, or a view, which reads none."""
        if isinstance(key, str):
            return self.field(key)
        plain_key = _plain(key, site)
        key = self.inside(plain_key, READ, site)
        if key is None:
            zero = np.zeros(1, self.data.dtype)
            nothing = np.broadcast_to(zero[0], [max(1, extent) for extent in self.data.shape])[_at_first(plain_key)]
            return ArrayRecord(self.recorder.array(zero, "nothing"), 0) if isinstance(nothing, np.void) else nothing
        values, cells = self.data[key], self.cells[key]
        if isinstance(values, np.void):
            return ArrayRecord(self, key)
        if isinstance(values, np.ndarray) and np.may_share_memory(values, self.data):
            return self.part(values, cells, self.width)
        self.touch(cells, READ, site)
        return self.recorder.array(values, "a copy") if isinstance(values, np.ndarray) else values

    def put(self, key: Any, value: Any, site: int) -> None:
        if isinstance(value, ArrayRecord):
            for name in value._array.data.dtype.names or ():
                self.field(name).put(key, value[name], site)
            return
        if isinstance(key, str):
            self.field(key).put(..., value, site)
            return
        key = self.inside(_plain(key, site), WRITE, site)
        if key is None:
            return
        if isinstance(value, Recording):
            value.read(site)
        self.write_cells(key, _plain(value, site), site)

    def write_cells(self, key: Any, value: Any, site: int) -> None:
        """Write, and record which cells held another value before."""
        before = np.array(self.data[key])
        _set(self.data, key, value)
        after, cells = np.asarray(self.data[key]), np.asarray(self.cells[key])
        same = (before == after) | ((before != before) & (after != after))  # noqa: PLR0124  NaN stays NaN
        rows = np.where(np.asarray(same), SAME, WRITE).ravel()
        for access in np.unique(rows).tolist():
            self.touch(cells.ravel()[rows == access], access, site)

    def touch(self, cells: Any, access: int, site: int) -> None:
        """Record an access to elements, by the first cell of each."""
        each = np.asarray(cells)[..., None] + np.arange(self.width)  # all cells of each
        self.recorder.touch_all(self.memory, each, access, site)

    def inside(self, key: Any, access: int, site: int) -> Any:
        """Return the key if each index is within its axis, else None."""
        keys = key if isinstance(key, tuple) else (key,)
        axis, missing = 0, self.data.ndim - sum(_axes(each) for each in keys)
        for each in keys:
            if each is Ellipsis:
                axis += missing
            elif isinstance(each, INTEGERS) and not isinstance(each, bool):
                if not self.holds(int(each), axis, access, site):
                    return None
            elif isinstance(each, np.ndarray | list) and np.asarray(each).dtype != bool:
                indices = np.asarray(each).ravel().tolist()
                if not all(self.holds(index, axis, access, site) for index in indices):
                    return None
            axis += _axes(each)
        return key

    def holds(self, index: int, axis: int, access: int, site: int) -> bool:
        """Whether an index is within its axis, also from the end; an index outside 0 .. extent - 1 is recorded."""
        extent: int = self.data.shape[axis]
        if 0 <= index < extent:
            return True
        is_wrapped = -extent <= index < 0
        where = self.recorder.sites[site]
        if not (is_wrapped and (where.file, where.line) in self.recorder.signed):
            kind = FindingKind.NEGATIVE_INDEX if is_wrapped else FindingKind.OUT_OF_BOUNDS
            self.recorder.outside(kind, self.memory, access, site, index, axis, extent)
        return is_wrapped

    def read(self, site: int) -> np.ndarray:
        """Return all numbers, recorded as read."""
        self.touch(self.cells, READ, site)
        return self.data

    def merge(self, function: Callable[..., Any], value: Any, site: int) -> Recording:
        """Merge a value into each cell, whatever the order of owners, and return the array."""
        self.data[...] = function(self.data, value.read(site) if isinstance(value, Recording) else value)
        self.touch(self.cells, ATOMIC, site)
        return self

    # Protocols of NumPy.

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.read(self.recorder.site(sys._getframe(1))), dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return self.call(getattr(ufunc, method), inputs, options, 1 if method == "at" else 0)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return self.call(function, args, options, _FILLED.get(function.__name__, 0))

    def call(self, function: Any, args: Sequence[Any], options: dict[str, Any], filled: int = 0) -> Any:
        """Call a NumPy function: arrays among its arguments are read, arrays that it fills are written, and its results
        get memories of their own. `filled`: how many of the first arguments are filled."""
        site = self.recorder.site(sys._getframe(2))
        out = options.get("out")
        targets = [*(out if isinstance(out, tuple) else (out,)), *args[:filled]]
        values = [each if number < filled else _plain(each, site) for number, each in enumerate(args)]
        before = [np.array(target.data) if isinstance(target, Recording) else None for target in targets]
        named = {name: _plain(value, site) for name, value in options.items() if name != "out"}
        if out is not None:
            named["out"] = _bare(out)
        result = function(*(_bare(each) for each in values), **named)
        for target, old in zip(targets, before, strict=True):
            if isinstance(target, Recording) and old is not None:
                new, target.data[...] = np.array(target.data), old
                target.write_cells(..., new, site)
        if out is not None:
            return out[0] if isinstance(out, tuple) and len(out) == 1 else out
        return self.wrap(result)

    def wrap(self, result: Any) -> Any:
        if isinstance(result, tuple):
            return tuple(self.wrap(each) for each in result)
        return self.recorder.array(result, "a result") if isinstance(result, np.ndarray) else result

    def __getattr__(self, name: str) -> Any:
        """Return an attribute or a method of an array: views stay views, and methods read, or fill, the whole."""
        if name == "T":
            return self.transpose()
        if name == "flat":
            return self._flat()
        if name in (self.data.dtype.names or ()):
            return self.field(name)
        if name in ("real", "imag") and self.data.dtype.kind == "c":
            half = self.width // 2
            return self.part(getattr(self.data, name), self.cells + half * (name == "imag"), half)
        attribute = self if name == "real" else getattr(self.data, name)
        if not callable(attribute):
            return attribute
        if name in _VIEWING:
            return lambda *args, **named: self._view(lambda each: getattr(each, name)(*args, **named))

        def method(*args: Any, **options: Any) -> Any:
            return self.call(getattr(np.ndarray, name), (self, *args), options, int(name in _FILLING))

        return method

    def view(self, dtype: Any) -> Recording:
        """Return the same cells as another dtype. UnsupportedError if its element is a part of a cell."""
        data = self.data.view(dtype)
        width, rest = divmod(data.itemsize * self.width, self.data.itemsize)
        if rest:
            raise UnsupportedError(f"a view of {self.data.dtype} as {data.dtype} parts the cells that are watched")
        cells = self.cells[..., :: max(1, data.itemsize // self.data.itemsize)] if self.data.ndim else self.cells
        if data.shape != cells.shape:
            cells = (cells[..., None] + width * np.arange(self.width // width)).reshape(data.shape)
        return self.part(data, cells, width)

    def field(self, name: str) -> Recording:
        """Return a field of the records, with the axes of the field after the array's own."""
        if name in self._fields:  # its cells are computed once
            return self._fields[name]
        data, unit, fields = self.data[name], self.data.itemsize // self.width, self.data.dtype.fields
        assert fields is not None
        width, within = data.itemsize // unit, data.shape[self.data.ndim :]
        cells = (self.cells + fields[name][1] // unit).reshape(*self.shape, *(1 for _ in within))
        cells = cells + width * np.arange(math.prod(within)).reshape(within)
        return self._fields.setdefault(name, self.part(data, cells, width))

    def part(self, data: np.ndarray, cells: np.ndarray, width: int) -> Recording:
        """Return a part of the memory as an array."""
        return type(self)(self.recorder, self.memory, data, cells, width)

    def _flat(self) -> Recording:
        """Return the elements along one axis. UnsupportedError if that is not a view."""
        flat = self.data.reshape(-1)
        if not np.may_share_memory(flat, self.data) and flat.size:
            raise UnsupportedError("x.flat of an array that is not packed is not watched")
        return self.part(flat, self.cells.reshape(-1), self.width)

    def _view(self, view: Callable[[np.ndarray], np.ndarray]) -> Recording:
        values, cells = view(self.data), view(self.cells)
        if np.may_share_memory(values, self.data) or not values.size:
            return self.part(values, cells, self.width)
        self.touch(cells, READ, self.recorder.site(sys._getframe(2)))
        return self.recorder.array(values, "a copy")

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Any]:
        for number in range(len(self.data)):
            yield self.pick(number, self.recorder.site(sys._getframe(1)))

    def __bool__(self) -> bool:
        return bool(self.read(self.recorder.site(sys._getframe(1))))

    def __float__(self) -> float:
        return float(self.read(self.recorder.site(sys._getframe(1))).item())

    def __int__(self) -> int:
        return int(self.read(self.recorder.site(sys._getframe(1))).item())

    def __repr__(self) -> str:
        return f"Recording({self.data!r})"


class ArrayRecord:
    """One record of an array in a kernel: its fields, by name or number, are read and written in place."""

    __slots__ = ("_array", "_key")
    _array: Recording
    _key: Any

    def __init__(self, array: Recording, key: Any) -> None:
        object.__setattr__(self, "_array", array)
        object.__setattr__(self, "_key", key)

    def _field(self, name: str | int) -> Recording:
        names = self._array.data.dtype.names or ()
        return self._array.field(name if isinstance(name, str) else names[name])

    def __getitem__(self, name: Any) -> Any:
        site = self._array.recorder.site(sys._getframe(1))
        return self._field(name).pick(self._key, site)

    def __setitem__(self, name: Any, value: Any) -> None:
        site = self._array.recorder.site(sys._getframe(1))
        self._field(name).put(self._key, value, site)

    __getattr__, __setattr__ = __getitem__, __setitem__


def _axes(key: Any) -> int:
    """Return the number of axes that a part of a key takes."""
    if key is None or key is Ellipsis or isinstance(key, bool | np.bool_):
        return 0
    return int(key.ndim) if isinstance(key, np.ndarray) and key.dtype == bool else 1


def _at_first(key: Any) -> Any:
    """Return a key of the same form that lies within any array."""
    if isinstance(key, tuple):
        return tuple(_at_first(each) for each in key)
    return key if key is None or key is Ellipsis or isinstance(key, slice) else 0


def _plain(value: Any, site: int) -> Any:
    """Return a key or a value with its recording arrays as NumPy's, which are read."""
    if isinstance(value, tuple | list):
        parts = [_plain(each, site) for each in value]
        return tuple(parts) if isinstance(value, tuple) else parts
    return value.read(site) if isinstance(value, Recording) else value


def _set(data: np.ndarray, key: Any, value: Any) -> None:
    """Store a value; one that is too large for an integer wraps around, as in compiled code."""
    try:
        data[key] = value
    except OverflowError:
        data[key] = np.asarray(value).astype(data.dtype)


def _bare(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_bare, value))
    return value.data if isinstance(value, Recording) else value
