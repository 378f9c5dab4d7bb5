"""What a launch being printed in Triton holds: lines, the names of values, and memory, which is blocks of values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.loops import Alloc, Const, Expr, Kernel, Store
from noyau.ir.monoids import MONOIDS
from noyau.languages.c_names import fitting
from noyau.languages.triton_expressions import Expressions, Used
from noyau.languages.triton_merges import merged
from noyau.languages.triton_names import Variables
from noyau.languages.triton_tables import TYPES, const_text
from noyau.schedules.grid_tiles import tile_of

INDENT = "    "


class Lines:
    """Lines under heads, and variables in them."""

    def __init__(self, kernel: Kernel, used: Used) -> None:
        self.kernel, self.used = kernel, used
        self.names = Variables(kernel)
        self.said = Expressions(kernel, self.names, used)
        self.lines: list[str] = []
        self.depth = 1
        self.known: list[dict[str, str]] = [{}]  # texts that have a name, block by block
        self.changing: set[str] = set()  # the variables that are assigned more than once
        self.waiting: dict[str, str] = {}  # lines that set memory, which need not be written where it is set again

    def write(self, line: str) -> None:
        self.lines.append(INDENT * self.depth + line)

    def define(self, text: str, wish: str) -> str:
        """A variable that holds a text; the one that does already, where there is one."""
        found = next((block[text] for block in reversed(self.known) if text in block), None)
        if found is not None:
            return found
        name = self.names.fresh(wish)
        self.write(f"{name} = {text}")
        if not self.changing & set(re.findall(r"[A-Za-z_]\w*", text)):
            self.known[-1][text] = name
        return name

    def write_waiting(self) -> None:
        """Write what has waited."""
        for line in self.waiting.values():
            self.write(line)
        self.waiting.clear()

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines under a head; what they name is not known after them."""
        self.write_waiting()
        self.write(head)
        self.depth += 1
        self.known.append({})
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.write("pass")
        self.known.pop()
        self.depth -= 1


class Memory(Lines):
    """Memory is a variable: a block of values, one for each cell of the open tiles and of its own."""

    def __init__(self, kernel: Kernel, used: Used, rank: int) -> None:
        super().__init__(kernel, used)
        self.rank = rank
        self.shapes: dict[str, str] = {}  # of memory
        self.empty: set[str] = set()  # memory that holds the state of nothing
        self.merged = frozenset[str]()  # memory of which the cells of a tile are merged, so that those outside matter

    def block_of(self, lanes: Iterable[str]) -> str:
        """The shape of a block of values along tiles."""
        axes = ["1"] * self.rank
        for name in lanes:
            axes[self.said.lanes[name].axis] = self.said.lanes[name].size
        return f"({', '.join(axes)}{',' if self.rank == 1 else ''})"

    def alloc(self, alloc: Alloc) -> None:
        said = self.said
        if len(alloc.shape) != 1:
            raise UnsupportedError(f"triton has no memory of {len(alloc.shape)} axes: {alloc.name}")
        said.memory[alloc.name] = alloc
        said.along[alloc.name] = frozenset(said.lanes)
        axes = ["1"] * self.rank
        for lane in said.lanes.values():
            axes[lane.axis] = lane.size
        if (found := tile_of(alloc.shape[0])) is not None:
            axes[len(said.lanes)] = found[0].name
        elif alloc.shape[0] != Dim.of(1):
            raise UnsupportedError(f"triton has no memory of {alloc.shape[0]} cells: {alloc.name}")
        scalar = not said.lanes and found is None
        self.shapes[alloc.name] = "()" if scalar else f"({', '.join(axes)}{',' if self.rank == 1 else ''})"
        name = self.names.bind(alloc.name, fitting(alloc.name))
        self.changing.add(name)

    def begin(self, buffers: Sequence[str], values: Sequence[Expr]) -> None:
        """Memory set to numbers."""
        for buffer, value in zip(buffers, values, strict=True):
            assert isinstance(value, Const)
            shape, kind = self.shapes[buffer], TYPES[self.said.memory[buffer].dtype]
            text = const_text(value.value, self.said.memory[buffer].dtype)
            self.waiting[buffer] = f"{self.names.value(buffer)} = tl.full({shape}, {text}, {kind})"

    def remember(self, store: Store) -> None:
        """A Store into memory: in the cells that are inside, where the memory has several."""
        if all(isinstance(value, Const) for value in store.values) and not store.merge:
            self.begin(store.buffers, store.values)
            return
        names = [self.names.value(buffer) for buffer in store.buffers]
        lanes = sorted(store.index[0].names) if self.merged & set(store.buffers) or not store.merge else ()
        own = [self.said.lanes[name].mask for name in lanes if name in self.said.lanes]
        mask = " & ".join(f"({m})" if " " in m else m for m in [*own, *self.said.conditions] if m)
        texts = [self.said.top(value) for value in store.values]
        dtypes = tuple(self.said.memory[buffer].dtype for buffer in store.buffers)
        if store.merge:
            empty = MONOIDS[store.merge].init(dtypes[0])
            if mask:
                texts = [
                    f"tl.where({mask}, {t}, {const_text(e, d)})" for t, e, d in zip(texts, empty, dtypes, strict=True)
                ]
            if mask and self.waiting.keys() >= set(store.buffers):
                self.first(store, names, texts)
            else:
                self.write_waiting()
                self.write(f"{', '.join(names)} = {merged(store.merge, names, texts, dtypes, self.said)}")
            return
        self.write_waiting()
        for name, text, buffer in zip(names, texts, store.buffers, strict=True):
            text = f"tl.where({mask}, {text}, {name})" if mask else text
            shape = self.shapes[buffer]
            self.write(f"{name} = {text if shape == '()' else f'tl.broadcast_to({text}, {shape})'}")

    def first(self, store: Store, names: Sequence[str], texts: Sequence[str]) -> None:
        """A merge into the state of nothing, which is not written."""
        for name, text, buffer, value in zip(names, texts, store.buffers, store.values, strict=True):
            del self.waiting[buffer]
            everywhere = self.said.lanes.keys() <= self.said.varies(value) | store.index[0].names
            self.write(f"{name} = {text if everywhere else f'tl.broadcast_to({text}, {self.shapes[buffer]})'}")
