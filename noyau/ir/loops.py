"""The loop IR: a kernel is launches in order; a launch is loops, folds, loads and stores over buffers.

An index is a `Dim` over sizes and names that begin with `#`: loop variables and indices that were looked up. float16
and bfloat16 are types of buffers only: a Load of one gives float32, and a Store rounds once. The sizes of a kernel
choose between its launches, for short and for long rows: a condition is a bool where a schedule can decide it, else an
expression that the launch evaluates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from math import copysign
from typing import Any, TypeAlias

from noyau.dtypes import DType
from noyau.ir.dims import Dim, Shape, maximum
from noyau.ir.operators import OPERATORS
from noyau.ir.sizes import Binding, Sizes

ZERO = Dim.of(0)
LINE_BYTES = 64  # of a cache line
SIDE = LINE_BYTES // 4  # cells along a side of a tile that is transposed: a cache line of 4-byte cells


class Axis(Enum):
    """Order of the iterations of a loop."""

    SERIAL = "serial"  # one after the other
    THREADS = "threads"  # in any order, on any thread
    LANES = "lanes"  # in any order, side by side in one thread
    BLOCKS = "blocks"  # in any order, on the blocks of a cluster, with a barrier at its end
    VECTOR = "vector"  # neighbouring cells of one thread, moved at once: the first is aligned for that


class TilePolicy(Enum):
    """Rule that sizes a tile, a power of two, from the sizes of a call; rules are applied in this order."""

    ALIGNMENT = "alignment"  # `number` cells fill 16 bytes; 1 where each row begins at a multiple of these anyway
    OCCUPYING = "occupying"  # at most `number` cells, and few enough that the programs occupy the GPU
    FIXED = "fixed"  # `number` cells
    LIMITED = "limited"  # `number` cells, or fewer if fewer cover the loop
    COVERING = "covering"  # as many as cover the loops, at most `number`
    KEPT = "kept"  # as COVERING; one warp for `warps` cells of all tiles, at most 8 warps
    GROWING = "growing"  # with the length of the row up to `number`, twice 16384 for one twice as long; see `warps`
    SHARING = "sharing"  # `number` over the size of the other tiles, at least 1


@dataclass(frozen=True, slots=True)
class Tile:
    """Cells that a program of a grid holds side by side; a launch chooses their number, a size that no input binds.

    `warps`: warps of a program; for GROWING and KEPT, cells a warp; 0 for the number that suits the cells of a program,
    times `warp_factor`. Where rows do not begin at multiples of 16 bytes, the cells of FIXED and GROWING are divided by
    `lead_divisor`, and a warp has at most 256 of them; elsewhere, if `doubled_from` is not 0, tiles of rows of at least
    so many cells have twice as many."""

    name: str
    policy: TilePolicy
    number: int
    warps: int = 0
    lead_divisor: int = 1
    doubled_from: int = 0
    warp_factor: int = 1

    @property
    def size(self) -> Dim:
        return Dim.of(f"${self.name}")

    def rounds(self, left: Dim) -> Dim:
        """The trip count over this tile's cells when `left` cells remain: the smaller of the two."""
        return -maximum(-self.size, -left)


class Role(Enum):
    """Role of a buffer in its kernel."""

    INPUT = "input"
    OUTPUT = "output"
    SCRATCH = "scratch"


class Space(Enum):
    """Place of memory that a launch allocates for itself."""

    REGISTER = "register"  # a few cells, of constant size
    THREAD = "thread"  # a row or a tile of one thread
    CLUSTER = "cluster"  # a cell of each block of a cluster
    LANE = "lane"  # vectors of each lane, in registers: the last two axes are vectors and their cells
    BLOCK = "block"  # cells that all lanes share, of constant size


@dataclass(frozen=True, slots=True)
class Buffer:
    """An array: an input, an output, or global scratch. `source` is the model's name for it.

    `strides`, for inputs only, are the distances in elements between neighbours along each axis: sizes of the call,
    also negative or 0. Without strides a buffer is packed in C order. A buffer with strides is indexed by one Dim an
    axis, never by an offset: the printer of a language with flat memory computes the offset."""

    name: str
    dtype: DType
    shape: Shape
    role: Role
    source: str = ""
    strides: Shape | None = None

    @property
    def layout(self) -> str:
        """Class of its strides: "packed"; "inner" where the last axis is contiguous; else "strided"."""
        if self.strides is None:
            return "packed"
        return "inner" if self.strides[-1] == Dim.of(1) else "strided"


@dataclass(frozen=True, slots=True)
class Const:  # noqa: PLW1641  the dataclass gives it a hash
    """A number of a dtype; 0.0 and -0.0 differ."""

    value: float | int | bool
    dtype: DType

    def __eq__(self, other: Any) -> bool:
        alike: bool = type(other) is Const and (self.value, self.dtype) == (other.value, other.dtype)
        return alike and copysign(1, self.value) == copysign(1, other.value)


@dataclass(frozen=True, slots=True)
class Var:
    """A name that a Let binds."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Index:
    """An index expression as an int64 value; with `alignment`, the offset of that tile's row from 16 bytes."""

    dim: Dim
    dtype: DType = DType.I64
    alignment: Tile | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """One cell of a buffer; where `where` is false the cell is not touched and the value is `other`."""

    buffer: str
    index: Shape
    dtype: DType
    where: Expr | None = None
    other: Const | None = None


class Assumption(Enum):
    """A fact about the operands of a call that a language may use."""

    NON_POSITIVE = "non-positive"  # the operand is never above 0
    SHARE = "share"  # a number from 0 to 1 divided by a larger one, which is invariant in the loop around it
    NEAR = "near"  # an angle of at most 12800, in f64 of at most 10^6


@dataclass(frozen=True, slots=True)
class Call:
    """A scalar function of the operator table."""

    function: str
    operands: tuple[Expr, ...]
    dtype: DType
    assumptions: frozenset[Assumption] = frozenset()


@dataclass(frozen=True, slots=True)
class Fold:
    """A monoid over loops: `body` runs for each iteration, then `value` is merged into the state at the position `at`,
    by default its flat index over the loops. With a tile, the last loop runs over the tile's cells, as a Loop does."""

    monoid: str
    loops: tuple[tuple[str, Dim], ...]
    body: tuple[Statement, ...]
    value: Expr
    dtype: DType
    at: Dim | None = None
    tile: Tile | None = None


@dataclass(frozen=True, slots=True)
class InWholeLines:
    """Whether a tile of `length` cells is full, with `cells` of them, and starts at a cache line at each of `places`;
    addresses are known only at run time."""

    length: Dim
    cells: int
    places: tuple[tuple[str, Shape], ...]
    dtype: DType = DType.BOOL


@dataclass(frozen=True, slots=True)
class CellsToAlignment:
    """The number of cells, at most `length`, from a place to the next one where a vector of `cells` cells, a power of
    two, is aligned to its size. Addresses are known only at run time. The place may lie outside of the buffer."""

    cells: int
    buffer: str
    index: Shape
    length: Dim
    dtype: DType = DType.I64


Expr: TypeAlias = Const | Var | Index | Load | Call | Fold | InWholeLines | CellsToAlignment


@dataclass(frozen=True, slots=True)
class Let:
    """A name for a value. `origin`: the value of the graph that it holds, and the index of the cell."""

    name: str
    value: Expr
    origin: tuple[str, Shape] | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """Values into one cell of each buffer; with `merge`, the monoid merges them, as a state, into the state there.
    `is_atomic`: lanes too may merge into one cell, in any order."""

    buffers: tuple[str, ...]
    index: Shape
    values: tuple[Expr, ...]
    merge: str | None = None
    is_atomic: bool = False


@dataclass(frozen=True, slots=True)
class Loop:
    """`body` for each value of `var` from `start` to `extent`, every `step`-th. With a tile, at most as many iterations
    as it has cells run side by side in a program; on SERIAL, their merges into memory that they share are reduced to
    one state. `alone`: the buffers whose cells a VECTOR moves one by one."""

    var: str
    extent: Dim
    axis: Axis
    body: tuple[Statement, ...]
    tile: Tile | None = None
    start: Dim = ZERO
    step: int = 1
    alone: frozenset[str] = frozenset()

    @property
    def rounds(self) -> Dim:
        return self.extent if self.tile is None else self.tile.rounds(self.extent)


@dataclass(frozen=True, slots=True)
class If:
    """`body` where the condition, a bool, is true."""

    condition: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Alloc:
    """Memory for the rest of the block that it stands in; unset at first."""

    name: str
    dtype: DType
    shape: Shape
    space: Space


@dataclass(frozen=True, slots=True)
class Prefetch:
    """A hint that `lines` cache lines, from that of a cell on, are read soon; they may lie outside of the buffer."""

    buffer: str
    index: Shape
    lines: int = 1


@dataclass(frozen=True, slots=True)
class Require:
    """The kernel fails with "index out of bounds" unless 0 <= index < extent."""

    index: Dim
    extent: Dim


@dataclass(frozen=True, slots=True)
class Zero:
    """Sets the first `extent` cells of memory to 0."""

    memory: str
    dtype: DType
    extent: Dim
    var: str


@dataclass(frozen=True, slots=True)
class MergeLanes:
    """Merges the states in the first `lanes` cells, a power of two, into cell 0: upper halves into lower ones."""

    monoid: str
    buffers: tuple[str, ...]
    dtypes: tuple[DType, ...]
    lanes: int
    var: str


@dataclass(frozen=True, slots=True)
class StreamStore:
    """Copies a tile of memory to neighbouring cells of a buffer, around the caches; with `lines`, whole lines."""

    buffer: str
    index: Shape
    memory: str
    start: Dim
    extent: Dim
    dtype: DType
    lines: bool = False


Intrinsic: TypeAlias = Zero | MergeLanes | StreamStore
Statement: TypeAlias = Let | Store | Loop | If | Alloc | Prefetch | Require | Intrinsic


@dataclass(frozen=True, slots=True)
class Reload:
    """A row in one tile: these buffers, of cells of so many bytes, are loaded again to write with.

    They come from the L1, which leaves registers to more programs: where as much of a buffer lies there, and rows
    follow each other at multiples of 16 bytes. Where none begins at one, narrow loads are not repeated either."""

    buffers: frozenset[str]
    tile: Tile
    cell_bytes: int


@dataclass(frozen=True, slots=True)
class Hints:
    """Advice to a language for GPUs. `is_loose`: a relative error of 2**-17 is allowed. `reads_once`: each input is
    read once, and little is written. `shares_inputs`: several programs read the same cells, and nothing else is read
    again. `is_pipelined`: loads of later rounds run ahead. `is_narrow`: counts of a thread are below 2**31. `resident`:
    the blocks that a multiprocessor is to have room for, 0 for any number. `waits`: it may begin before the previous
    launch has written all of its memory (programmatic dependent launch), as may one that `follows`, which reads scratch
    of another launch of its kernel. `passes`: for each buffer, the loops over tiles that load from it."""

    is_loose: bool = False
    reads_once: bool = False
    shares_inputs: bool = False
    is_pipelined: bool = False
    is_narrow: bool = False
    waits: bool = False
    follows: bool = False
    resident: int = 0
    passes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    reload: Reload | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """Statements, the outermost loops bound to THREADS; they run where `when`, a bool of sizes, is true. `tiles`: the
    tiles that they name, each name once, in an order in which their sizes can be computed. `threads`: of a block, where
    a language has blocks of threads as lanes; 0 leaves the number to it."""

    body: tuple[Statement, ...]
    when: Expr | None = None
    tiles: tuple[Tile, ...] = ()
    hints: Hints = Hints()
    threads: int = 0


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on the sizes of a call, which is refused otherwise: left <= right, unless `cells` is 0."""

    cells: Dim
    left: Dim
    right: Dim

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether sizes satisfy the condition; False where it divides by 0."""
        try:
            return not self.cells.evaluate(sizes) or bool(self.left.evaluate(sizes) <= self.right.evaluate(sizes))
        except ZeroDivisionError:
            return False


@dataclass(frozen=True, slots=True)
class Kernel:
    """One callable: inputs, outputs and scratch in that order; launches in order; `binding` of sizes under `guards`."""

    name: str
    buffers: tuple[Buffer, ...]
    binding: tuple[Binding, ...]
    launches: tuple[Launch, ...]
    guards: tuple[Guard, ...] = ()

    def of(self, role: Role) -> tuple[Buffer, ...]:
        return tuple(buffer for buffer in self.buffers if buffer.role is role)

    def __getitem__(self, name: str) -> Buffer:
        return next(buffer for buffer in self.buffers if buffer.name == name)


Condition = Expr | bool


def at_most(left: Dim, right: Dim) -> Condition:
    """The condition that one size is at most another."""
    difference = (right - left).constant
    return Call("less_equal", (Index(left), Index(right)), DType.BOOL) if difference is None else difference >= 0


def all_of(conditions: Iterable[Condition]) -> Condition:
    """The conjunction of conditions; True for none."""
    distinct = dict.fromkeys(conditions)
    if False in distinct:
        return False
    unknown = [each for each in distinct if not isinstance(each, bool)]
    return reduce(lambda one, other: Call("logical_and", (one, other), DType.BOOL), unknown) if unknown else True


def opposite(condition: Condition) -> Condition:
    """The negation of a condition."""
    return not condition if isinstance(condition, bool) else Call("logical_not", (condition,), DType.BOOL)


def when(condition: Condition) -> Expr | None:
    """The `when` of a launch under a condition: None if it surely holds. ValueError if it never does."""
    if condition is False:
        raise ValueError("it never runs")
    return None if condition is True else condition


def conditions_of(kernel: Kernel) -> list[Expr]:
    """The conditions of the launches that have one, bools of sizes."""
    return [launch.when for launch in kernel.launches if launch.when is not None]


def runs(when: Expr, sizes: Sizes) -> bool:
    """Whether a launch with this condition runs at these sizes; False where they do not determine it."""
    try:
        return bool(_value(when, sizes))
    except (KeyError, ZeroDivisionError):
        return False


def _value(expr: Expr, sizes: Sizes) -> Any:
    match expr:
        case Index(dim):
            return dim.evaluate(sizes)
        case Const(value):
            return value
        case Call(function, operands) if function in OPERATORS:
            return OPERATORS[function].evaluate(*(_value(operand, sizes) for operand in operands))
        case _:
            raise KeyError(expr)
