"""Expressions of the loop IR as text for Triton: tiles, masks, reductions, and the functions that these need.

Some rows need functions that the text of a kernel calls: those that begin at no multiple of 16 bytes, are loaded
twice, or are divided by one value. `LeadTile` describes a tile that begins before its row."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from noyau.codegen.statements import steps_of
from noyau.codegen.tables import as_operand, snippets, unwrap
from noyau.codegen.triton import tables
from noyau.codegen.triton.tables import SizeText, TritonNames
from noyau.compiler.schedules.gpu.strategies import FOLDED, WRITTEN
from noyau.compiler.schedules.gpu.tiles import offset_of
from noyau.dtypes import HALVES, DType
from noyau.errors import UnsupportedError
from noyau.ir import loops
from noyau.ir.dims import Dim, DimOp, Shape, never_negative, product
from noyau.ir.loops import Alloc, Buffer, Call, Const, Expr, Index, Let, Load, Var
from noyau.ir.monoids import MONOIDS, Symbolic
from noyau.ir.operators import OPERATORS
from noyau.ir.ranges import at_least_one, lowest
from noyau.ir.walk import every_expression, rewrite_expression

# The functions of rows.txt by their use. "quotient" divides a tile by one value: x is scaled, then multiplied by the
# inverse of the divisor, which has the same scale; a Newton step makes the result the nearest float (Markstein 1990).
# Zeros, infinities and NaN are as the multiplication gives them.
_ROWS = {
    "scale": ("noyau_scale",),
    "quotient": ("noyau_quotient",),
    "inside": ("noyau_inside",),
    "led": ("noyau_lines", "noyau_at_end", "noyau_near", "noyau_load", "noyau_store"),
    "of row": ("noyau_of_row",),
    "again": ("noyau_again",),
    "ahead": ("noyau_ahead", "noyau_behind"),
}
WORDS = {"max": "max", "min": "min", "any": "max", "all": "min"}  # Triton's reductions of integers and bools


def row_functions(used: Collection[str]) -> list[str]:
    """The texts of the functions of rows.txt for the uses in `used`."""
    texts = snippets(Path(__file__).with_name("rows.txt"))
    return [texts[function] for name, functions in _ROWS.items() if name in used for function in functions]


@dataclass(frozen=True, slots=True)
class LeadTile:
    """A tile that begins before its row, where a line of 16 bytes begins. `row`: where the row begins. Texts: `line`,
    where that line begins; `cells`, counted from there; masks of the cells `inside` the row, in whole `lines` of it,
    and `near`, in lines that it touches; `at_end`, whether a line is partly outside; `until`, where the tile ends."""

    row: Dim
    line: str
    cells: str
    inside: str
    lines: str
    at_end: str
    near: str
    until: str


def guarded_index(condition: Expr) -> str | None:
    """The index that a condition requires to be >= 0, that is, not before its row; None for other conditions."""
    match condition:
        case Call("greater_equal", (Index(index), Index(zero))) if zero == Dim.of(0) and len(index.names) == 1:
            return next(iter(index.names))
        case _:
            return None


NONE = frozenset[str]()
EITHER, FIRST, LAST = '""', '"evict_first"', '"evict_last"'  # Triton's eviction policies


@dataclass(frozen=True, slots=True)
class Lane:
    """An open tile: its axis in Triton's blocks, the word for its size, and the mask of the cells that are inside."""

    axis: int
    size: str
    mask: str | None


@dataclass(slots=True)
class TextFunctions:
    """The functions that the text of a file needs above its kernels."""

    functions: set[tuple[str, DType, bool]] = field(default_factory=set)  # the bool: whether loose
    merges: set[tuple[str, DType, bool]] = field(default_factory=set)
    rows: set[str] = field(default_factory=set)  # keys of _ROWS
    host: set[str] = field(default_factory=set)  # functions that choose arguments of a launch


class TritonExpressions(SizeText):
    """Prints the expressions of one launch; knows what is in scope, and along which open tiles each name varies."""

    CDIV = "tl.cdiv"

    def __init__(self, kernel: loops.Kernel, names: TritonNames, used: TextFunctions) -> None:
        super().__init__(names)
        self.used = used
        self.memory: dict[str, Buffer | Alloc] = {buffer.name: buffer for buffer in kernel.buffers}
        self.lanes: dict[str, Lane] = {}  # open tiles, by their variables
        self.along: dict[str, frozenset[str]] = {}  # the tiles that a name varies along
        self.extents: dict[str, Dim] = {}
        self.inside: dict[str, str] = {}  # the masks of indices that a Require checks
        self.conditions: list[str] = []  # those of the open Ifs
        self.hints = loops.Hints()  # those of the launch
        self.passes: dict[str, tuple[str, ...]] = {}  # the loops over tiles that load from each buffer
        self.passing: str | None = None  # the open pass
        self.held: dict[str, str] = {}  # the text of a load to the variable that holds its result
        self.placed: dict[str, Dim] = {}  # the indices along open tiles
        self.sizes: dict[str, Dim] = {}  # numbers of cells of open tiles, by their variables
        self.led: dict[str, LeadTile] = {}  # tiles that begin before their rows, by the index along them
        self.ahead: dict[str, str] = {}  # variables with what was loaded before it is needed, by buffer
        self.ends: dict[Dim, None] = {}  # the lengths of the buffers that are loaded in lines

    @property
    def reloaded(self) -> frozenset[str]:
        """The inputs that are loaded again in the pass that writes the results."""
        return NONE if self.hints.reload is None else self.hints.reload.buffers

    # Along which tiles an expression varies.

    def varies(self, expr: Expr) -> frozenset[str]:
        """The open tiles along which an expression has different values."""
        match expr:
            case Const() | loops.InWholeLines() | loops.CellsToAlignment():
                return NONE
            case Var(name, _):
                return self.along.get(name, NONE)
            case Index(dim, _):
                return self.dim_varies((dim,))
            case Load(buffer, index, _, where, _):
                own = self.along.get(buffer, NONE) if isinstance(self.memory[buffer], Alloc) else NONE
                return own | self.dim_varies(index) | (NONE if where is None else self.varies(where))
            case loops.Call(_, operands, _):
                return NONE.union(*map(self.varies, operands))
            case loops.Fold(_, over, _, value, _, _):
                return self.varies(value) - {variable for variable, _ in over}
            case _:
                assert_never(expr)

    def dim_varies(self, dims: Iterable[Dim]) -> frozenset[str]:
        return NONE.union(*(self.along.get(name, NONE) for dim in dims for name in dim.names))

    # Values.

    def top(self, expr: Expr) -> str:
        return unwrap(self.expr(expr))

    def state(self, expr: Expr) -> str:
        """A part of a state as text. Constants carry their dtypes, as the parts that they are merged with do."""
        return typed_const(expr) if isinstance(expr, Const) else self.top(expr)

    def expr(self, expr: Expr) -> str:
        """The text of an expression, with parentheses where an operand needs them."""
        match expr:
            case Const(value, dtype):
                return tables.const_text(value, dtype)
            case Var(name, _):
                return self.names.value(name)
            case Index(dim, _):
                return self.index(dim, DType.I64)
            case Load():
                return self.load(expr)
            case loops.Call(function, operands, dtype):
                return self.call(function, operands, dtype)
            case loops.InWholeLines() | loops.CellsToAlignment():
                raise UnsupportedError("triton does not ask where memory lies: schedules for CPUs do")
            case loops.Fold():
                raise UnsupportedError("triton reduces tiles only: a schedule for GPUs comes before it prints")
            case _:
                assert_never(expr)

    def load(self, load: Load) -> str:
        buffer = self.memory[load.buffer]
        if isinstance(buffer, Alloc):
            return self.names.value(load.buffer)
        if (again := self.again_loaded(load, buffer)) is not None:
            return again
        masks = self.masks(load.index, None if load.where is None else self.expr(load.where))
        other = tables.const_text(load.other.value, load.other.dtype) if load.other else "0"
        options = f", mask={unwrap(masks)}, other={unwrap(other)}" if masks else ""
        if load.where is None and (led := self.lead_of(buffer, load.index)):
            text = self.load_lines(buffer, load.index, led)
        elif self.passing == WRITTEN and load.buffer in self.ahead:
            cells, inside = self.cell(buffer, load.index), unwrap(masks) or "True"
            text = f"noyau_behind({self.ahead[load.buffer]}, {cells}, {inside}, AHEAD)"
        else:
            keeping = self.keeping(load.buffer, load.index)
            options += f", eviction_policy={keeping}" if keeping != EITHER else ""
            named = every_expression([Let("", load.where)]) if load.where is not None else ()
            lanes = self.dim_varies([each.dim for each in named if isinstance(each, Index)])
            # Triton takes no mask of several cells at one place.
            spread = f" + tl.where({unwrap(masks)}, 0, 0)" if lanes and not self.dim_varies(load.index) else ""
            text = f"tl.load({self.cell(buffer, load.index)}{spread}{options})"
        return f"{text}.to(tl.float32)" if buffer.dtype in HALVES else text

    def again_loaded(self, load: Load, buffer: Buffer) -> str | None:
        """A cell that a fold has read, loaded again where that is cheaper than holding it; None for other cells."""
        if self.passing != WRITTEN or load.buffer not in self.reloaded:
            return None
        with self.pass_of(FOLDED):
            held = self.held.get(self.load(load))
        if held is None:
            return None
        self.used.rows.add("again")
        led = self.lead_of(buffer, load.index)
        cells, masks = self.cell(buffer, load.index), self.masks(load.index)
        cells = cells if led is None else self.in_lines(buffer, load.index, led)[0]
        return f"noyau_again({held}, {cells}, {unwrap(masks) or 'True'}, AGAIN)"

    @contextmanager
    def pass_of(self, name: str | None) -> Iterator[None]:
        """Makes `name` the open pass over rows."""
        around, self.passing = self.passing, name
        yield
        self.passing = around

    def keeping(self, buffer: str, index: Shape = ()) -> str:
        """The eviction policy of a load, as text: a row that a later pass reads again is to stay in the cache."""
        if self.passing == FOLDED and buffer in self.reloaded:
            return '"evict_last" if AGAIN else ""'
        held, whole = self.memory[buffer], self.lanes.keys() <= self.dim_varies(index)
        if self.hints.reads_once and whole and isinstance(held, Buffer) and held.role is loops.Role.INPUT:
            return FIRST
        passes = self.passes.get(buffer, ())
        again = len(passes) > 1 and self.passing in passes
        return EITHER if not again else FIRST if self.passing == passes[-1] else LAST

    def leaving(self) -> str:
        """The eviction policy of a store, as text: results leave the cache first where rows are to stay in it."""
        last = self.passing in {p[-1] for p in self.passes.values() if len(p) > 1}
        return FIRST if self.hints.shares_inputs or last else EITHER

    def cell(self, buffer: Buffer, index: Shape) -> str:
        offset, name = offset_of(buffer, index), self.names.value(buffer.name)
        if offset == Dim.of(0):
            return name
        text = self.dim(offset)
        return f"{name} + {f'({text})' if text.startswith('-') else text}"

    def lead_of(self, buffer: Buffer, index: Shape) -> LeadTile | None:
        """The tile beginning before its row that these cells lie along; None if there is none."""
        offset = offset_of(buffer, index)
        for name in sorted(offset.names & self.led.keys()):
            if offset - Dim.of(name) == self.led[name].row:
                return self.led[name]
        return None

    def in_lines(self, buffer: Buffer, index: Shape, led: LeadTile) -> tuple[str, str, str]:
        """For cells along `led`: their addresses, the mask of those inside, and of those in whole lines of the row."""
        inside = self.masks(index)
        lines = " & ".join(led.lines if part == led.inside else part for part in inside.split(" & "))
        return f"{self.names.value(buffer.name)} + {led.line} + {led.cells}", inside, lines

    def load_lines(self, buffer: Buffer, index: Shape, led: LeadTile) -> str:
        """A load of cells along `led`: whole lines within the buffer, even past the row, and the rest at its end."""
        cells, inside, _ = self.in_lines(buffer, index, led)
        near = " & ".join(led.near if part == led.inside else part for part in inside.split(" & "))
        total = product(buffer.shape)
        if buffer.strides is not None:
            total = 1 + sum(((n - 1) * s for n, s in zip(buffer.shape, buffer.strides, strict=True)), Dim.of(0))
        place = f"{led.line} + {led.cells}, {self.dim(total)}, {led.until}"
        self.ends.setdefault(total)
        return f"noyau_load({cells}, {inside}, {near}, {place}, ALIGN, ENDS, {self.keeping(buffer.name, index)})"

    def masks(self, index: Shape, where: str | None = None) -> str:
        """The mask of the cells that may be accessed; "" where all may."""
        lanes = [self.lanes[name].mask for name in sorted(self.dim_varies(index)) if name in self.lanes]
        looked_up = [self.inside[name] for dim in index for name in sorted(dim.names) if name in self.inside]
        masks = [mask for mask in [*lanes, *looked_up, *self.conditions, where] if mask]
        return " & ".join(map(as_operand, dict.fromkeys(masks)))

    def call(self, function: str, operands: tuple[Expr, ...], dtype: DType) -> str:
        source = operands[-1].dtype
        if function == "cast":
            return self.cast(operands[0], dtype)
        if OPERATORS[function].is_comparison and all(isinstance(operand, Index) for operand in operands):
            left, right = (as_operand(self.dim(o.dim)) for o in operands if isinstance(o, Index))
            return f"({left} {tables.INFIX[function]} {right})"
        values = operands[1:] if function == "where" else operands  # constants alone would get Triton's default dtypes
        alone = all(isinstance(operand, Const) for operand in values)
        texts = [self.operand(operand, function, alone=alone) for operand in operands]
        if function == "where":
            return f"tl.where({', '.join(map(unwrap, texts))})"
        if function in tables.INFIX:
            return f"({texts[0]} {tables.INFIX[function]} {texts[1]})"
        return self.call_text(function, source).format(*texts)

    def operand(self, operand: Expr, function: str, *, alone: bool) -> str:
        """An operand. A constant carries its dtype where no other operand does, and where Triton would round it."""
        if not isinstance(operand, Const):
            return self.expr(operand)
        exact = operand.dtype is DType.F64 and function not in tables.INFIX
        is_narrow = operand.dtype.bytes < 4 and not operand.dtype.is_float  # Triton would widen the other operand
        exact |= is_narrow and function in tables.INTEGERS
        spelled = tables.call_text(function, operand.dtype) or ""
        needs_type = tables.is_own(function, operand.dtype) or "}.to(" in spelled
        return typed_const(operand) if alone or exact or needs_type else self.expr(operand)

    def call_text(self, function: str, dtype: DType) -> str:
        """The text of a call as a format string with a place for each operand."""
        loose = self.hints.is_loose and dtype is DType.F32
        text = tables.LOOSE.get(function) if loose and function in tables.LOOSE else tables.call_text(function, dtype)
        if text is not None:
            return text
        if not tables.is_own(function, dtype):
            raise UnsupportedError(f"triton has no spelling of {function} for {dtype.value}")
        loose = loose and function in tables.BY_EXP
        self.used.functions.add((function, dtype, loose))
        places = ", ".join(f"{{{at}}}" for at in range(OPERATORS[function].arity))
        return f"{tables.own_name(function, dtype, loose)}({places})"

    def cast(self, operand: Expr, dtype: DType) -> str:
        if isinstance(operand, Index) and dtype is not DType.BOOL:
            return self.index(operand.dim, dtype)
        text = self.expr(operand)
        if dtype is operand.dtype:
            return text
        if dtype is DType.BOOL:
            return f"({text} != 0)"
        text = typed_const(operand) if isinstance(operand, Const) else as_operand(text)
        return f"{text}.to({tables.TYPES[dtype]})"

    def index(self, dim: Dim, dtype: DType) -> str:
        """An index as a value. It is cast, since loop counters are Python ints in Triton's interpreter."""
        if dim.constant is None:
            return f"tl.cast({self.dim(dim)}, {tables.TYPES[dtype]})"
        text = tables.typed_number(dim.constant, DType.I64)
        return text if dtype is DType.I64 else f"{text}.to({tables.TYPES[dtype]})"

    def operate(self, op: DimOp, left: str, right: str) -> str:
        """The text of a division, remainder, max or min. Triton divides towards zero, Dims round down."""
        if op.kind in ("max", "min"):
            word = "maximum" if op.kind == "max" else "minimum"
            return f"tl.{word}({unwrap(left)}, {unwrap(right)})"
        if (step := op.right.constant) and op.kind == "floordiv" and self.is_natural(op.left - (step - 1)):
            return f"tl.cdiv({self.dim(op.left - (step - 1))}, {step})"
        if self.is_natural(op.left):
            return f"({as_operand(left)} {'//' if op.kind == 'floordiv' else '%'} {as_operand(right)})"
        left, right = as_operand(left), as_operand(right)
        rest = f"(({left} % {right} + {right}) % {right})"
        return rest if op.kind == "mod" else f"(({left} - {rest}) // {right})"

    def is_natural(self, dim: Dim) -> bool:
        """Whether `dim` is surely >= 0 here, given that every open loop has an iteration."""
        low = lowest(dim, self.extents)
        running = NONE.union(*(at_least_one(extent) for extent in self.extents.values()))
        return low is not None and never_negative(low, running)


def typed_const(operand: Const) -> str:
    return tables.typed_number(operand.value, operand.dtype)


def reduce_states(
    monoid: str, states: Sequence[str], axis: int, dtypes: Sequence[DType], rank: int, texts: TritonExpressions
) -> str:
    """The text that merges the states of a tile along an axis; with other axes, it stays as one of length 1."""
    how = f"axis={axis}, keep_dims=True" if rank > 1 else f"axis={axis}"
    dtype, (first, *_) = dtypes[0], states
    if dtype is DType.BOOL:
        return f"tl.{WORDS[monoid]}(({first}).to(tl.int32), {how}) != 0"
    if monoid in ("sum", *WORDS) and (monoid == "sum" or not dtype.is_float):
        text = f"tl.{WORDS.get(monoid, monoid)}({first}, {how})"
        return text if dtype.is_float or dtype.bytes >= 4 else f"{text}.to({tables.TYPES[dtype]})"
    name = _merge_of(monoid, dtype, texts)
    state = first if len(states) == 1 else f"({', '.join(states)})"
    return f"tl.reduce({state}, {axis}, {name}{', keep_dims=True' if rank > 1 else ''})"


def merge_states(
    monoid: str, left: Sequence[str], right: Sequence[str], dtypes: Sequence[DType], texts: TritonExpressions
) -> str:
    """The text that merges two states, the earlier one first."""
    if monoid == "sum":
        return f"{left[0]} + {right[0]}"
    return f"{_merge_of(monoid, dtypes[0], texts)}({', '.join([*left, *right])})"


def _merge_of(monoid: str, dtype: DType, texts: TritonExpressions) -> str:
    """The name of the function that merges two states; notes that the text needs it."""
    loose = texts.hints.is_loose and monoid == "logsumexp" and dtype is DType.F32
    texts.used.merges.add((monoid, dtype, loose))
    return tables.own_name(f"merge_{monoid}", dtype, loose)


def merge_function(monoid: str, dtype: DType, used: TextFunctions, loose: bool) -> str:
    """The text of the function that merges two states."""
    sides = [tuple(Var(f"{side}{part}", d) for part, d in enumerate(MONOIDS[monoid].states(dtype))) for side in "ab"]
    names = [var.name for side in sides for var in side]
    values: tuple[Expr, ...] = MONOIDS[monoid].merge(Symbolic(), *sides)
    function = tables.own_name(f"merge_{monoid}", dtype, loose)
    variables = TritonNames(loops.Kernel(function, (), (), ()))
    texts = TritonExpressions(loops.Kernel("", (), (), ()), variables, used)
    texts.hints = loops.Hints(is_loose=loose)
    for name in names:
        variables.alias(name, variables.fresh(name))
    lines, known = list[str](), dict[Expr, Expr]()
    for step in steps_of(values):
        inner = rewrite_expression(step, lambda expr: known.get(expr, expr))
        name = variables.fresh(f"t{len(lines)}")
        lines.append(f"    {name} = {texts.top(inner)}")
        variables.alias(name, name)
        known[inner] = Var(name, step.dtype)
    results = ", ".join(texts.top(rewrite_expression(value, lambda expr: known.get(expr, expr))) for value in values)
    return "\n".join([f"@triton.jit\ndef {function}({', '.join(names)}):", *lines, f"    return {results}"])
