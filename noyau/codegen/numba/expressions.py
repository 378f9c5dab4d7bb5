"""Expressions of the loop IR as Python text for Numba; an offset is taken apart into an index along each axis where
each is certainly inside."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from noyau.codegen import statements
from noyau.codegen.numba.tables import INTEGER_FUNCTIONS, KINDS, OF_BOOLS, PREFIX, NumbaNames, const_text, narrow
from noyau.codegen.statements import is_variable
from noyau.codegen.tables import closed, opened
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Atom, Dim, DimOp, Shape, exact_part, never_negative, strides_of
from noyau.ir.loops import Alloc, Buffer, Expr, Kernel, Role
from noyau.ir.ranges import at_least_one, highest, lowest


class NumbaExpressions(statements.Expressions):
    """The expressions of one kernel in Python for Numba.

    `flat` are the packed buffers of the launch that are indexed by one offset, for some index into them is none along
    their axes."""

    language = "numba"
    prefix, integer_functions = PREFIX, INTEGER_FUNCTIONS
    names: NumbaNames

    def __init__(self, kernel: Kernel, names: NumbaNames) -> None:
        super().__init__(kernel, names)
        self.lengths: dict[str, tuple[Dim, Dim]] = {}  # what `tile_of` says of those that have a name
        self.tiles: dict[str, tuple[Dim, Dim]] = {}  # the same of the loops over them that are open
        self.threads: frozenset[str] = frozenset()  # the variables of the loops on threads
        self.flat: set[str] = set()

    def const(self, value: float | int | bool, dtype: DType) -> str:
        return const_text(value, dtype)

    # Memory.

    def cell(self, name: str, index: Shape) -> str:
        memory = self.memory[name]
        if is_variable(memory) or is_number(memory):
            return self.names.value(name)
        if isinstance(memory, Buffer):
            index = self.axes(memory, index)
        elif len(index) != 1:
            raise UnsupportedError(f"numba has no {len(index)} indices of {name}: flatten comes before it prints")
        places = [self.place(dim, last=axis == len(index) - 1) for axis, dim in enumerate(index)]
        return f"{self.names.value(name)}[{', '.join(places) or '()'}]"

    def axes(self, buffer: Buffer, index: Shape) -> Shape:
        """The index along each axis of a buffer, or the offset into one that is flat in this launch."""
        if buffer.strides is not None or len(buffer.shape) == 1:
            return index
        if len(index) != 1:
            raise UnsupportedError(
                f"numba has no {len(index)} indices of {buffer.name}: flatten comes before it prints"
            )
        if not buffer.shape:
            return () if buffer.role is Role.OUTPUT else index
        indices = None if buffer.name in self.flat else self.unflattened(index[0], buffer.shape)
        if indices is None:
            self.flat.add(buffer.name)
            return index
        return indices

    def unflattened(self, offset: Dim, shape: Shape) -> Shape | None:
        """The index along each axis, where it is certain that each but the first is inside."""
        indices = []
        for stride in strides_of(shape)[:-1]:
            whole, offset = exact_part(offset, stride)
            candidates = ((whole, offset), (whole - 1, offset + stride))  # the latter where the axis is flipped
            inside = [pair for pair in candidates if self.is_inside(pair[1], stride)]
            if not inside:
                return None
            whole, offset = inside[0]
            indices.append(whole)
        return (*indices, offset)

    def is_inside(self, index: Dim, extent: Dim) -> bool:
        index, extents = out_of_tiles(index, self.tiles, self.required | self.extents)
        return is_inside(index, extent, extents)

    def place(self, dim: Dim, *, last: bool) -> str:
        """An index along an axis. What may be negative as far as LLVM can see is made unsigned: Numba would count it
        from the end, which keeps loops from being vectorised."""
        text = self.dim(dim)
        plain = all(
            factor > 0 and all(isinstance(atom, str) and atom in self.extents.keys() - self.threads for atom in atoms)
            for atoms, factor in dim.terms
        )
        outer = not last and text.isidentifier()
        return text if plain or outer else f"u64({text})"

    # Calls.

    def chosen(self, condition: str, value: str, other: str) -> str:
        return f"({value} if {condition} else {other})"

    def own(self, function: str, operands: tuple[Expr, ...]) -> str | None:
        source = operands[0].dtype
        if function == "is_inf":
            return f"(abs({self.top(operands[0])}) == {const_text(float('inf'), source)})"
        if function == "rounded":  # as all is in a kernel that fuses nothing
            return self.expr(operands[0])
        if source is DType.BOOL and function in OF_BOOLS:
            left, right = map(self.expr, operands)
            return f"({left} {OF_BOOLS[function]} {right})"
        return None

    def narrow(self, text: str, dtype: DType) -> str:
        return narrow(text, dtype)

    def converted(self, operand: Expr, dtype: DType) -> str:
        text = self.expr(operand)
        if dtype is operand.dtype:
            return text
        if dtype is DType.BOOL:
            return f"({text} != {const_text(0, operand.dtype)})"
        return f"{KINDS[dtype]}({opened(text)})"

    def operate(self, op: DimOp, left: str, right: str) -> str:
        """Python divides downwards, as Dims do."""
        if op.kind in ("max", "min"):
            return f"{op.kind}({opened(left)}, {opened(right)})"
        return f"({closed(left)} {'//' if op.kind == 'floordiv' else '%'} {closed(right)})"


def is_number(memory: Buffer | Alloc) -> bool:
    """Whether it is an input without axes, which launches take as a number: in a prange, Numba has it as one."""
    return isinstance(memory, Buffer) and not memory.shape and memory.role is Role.INPUT


def is_inside(index: Dim, extent: Dim, extents: Mapping[str, Dim]) -> bool:
    """Whether 0 <= index < extent is certain within loops of these extents.

    What divides sizes alone, such as the tiles n // 64 and the rest n % 64 of a length n, is taken as a size; of such
    it is known that n // 64 * 64 + n % 64 is n."""
    values: dict[str, Dim] = {}
    plain = {name: _plain(of, values) for name, of in extents.items()}
    index, extent = _plain(index, values), _plain(extent, values)
    low, high = lowest(index, plain), highest(index, plain)
    if low is None or high is None:
        return False
    running = frozenset[str]().union(*(at_least_one(of) for of in extents.values()))
    left = _least((extent - 1 - high).replace(values))
    return never_negative(low.replace(values), running) and never_negative(left, running)


def tile_of(length: Dim, lengths: Mapping[str, tuple[Dim, Dim]]) -> tuple[Dim, Dim] | None:
    """The begin and the extent in the length of a tile, min(size, extent - begin).

    `lengths` has them for the tiles that it may lie in."""
    match length.terms:
        case (((DimOp("max", left, right),), -1),):
            for left_over in (-left, -right):
                begin = Dim(tuple((atoms, -factor) for atoms, factor in left_over.terms if _moves(atoms, lengths)))
                if begin.terms and never_negative(begin):
                    before, extent = lengths.get(str(left_over + begin), (Dim.of(0), left_over + begin))
                    return before + begin, extent
        case _:
            pass
    return None


def _moves(atoms: Sequence[Atom], lengths: Container[str]) -> bool:
    return any(isinstance(atom, str) and atom.startswith("#") and atom not in lengths for atom in atoms)


def out_of_tiles(
    index: Dim, tiles: Mapping[str, tuple[Dim, Dim]], extents: Mapping[str, Dim]
) -> tuple[Dim, Mapping[str, Dim]]:
    """An index by variables that count through whole axes, where it goes through these by tiles; and their extents."""
    for name, (begin, extent) in tiles.items():
        if name in index.names:
            whole = f"{name}_whole"
            changed = index.replace({name: Dim.of(whole) - begin})
            if not any(moving in changed.names for moving in begin.names if moving.startswith("#")):
                index, extents = changed, {**extents, whole: extent}
    return index, extents


def _plain(dim: Dim, values: dict[str, Dim]) -> Dim:
    """The Dim with a name for each natural operation on sizes alone; `known` has what each name stands for."""
    total = Dim.of(0)
    for atoms, factor in dim.terms:
        part = Dim.of(factor)
        for atom in atoms:
            whole = Dim((((atom,), 1),))
            if isinstance(atom, DimOp) and never_negative(whole) and not any(n.startswith("#") for n in whole.names):
                name = f"natural {whole}"
                values[name], whole = whole, Dim.of(name)
            part = part * whole
        total = total + part
    return total


def _least(dim: Dim) -> Dim:
    """The least value of a Dim of sizes, with n % c as n - n // c * c, and n // c * c, where it is subtracted, as n."""
    total = Dim.of(0)
    for atoms, factor in dim.terms:
        match atoms:
            case (DimOp("mod", left, right),) if right.constant:
                total = total + (left - Dim((((DimOp("floordiv", left, right),), 1),)) * right) * factor
            case _:
                total = total + Dim(((atoms, factor),))
    if total != dim:
        return _least(total)
    for atoms, factor in sorted(dim.terms, key=lambda term: -len(str(term[0]))):  # what others stand in comes later
        match atoms:
            case (DimOp("floordiv", left, right),) if factor < 0 and right.constant and factor % right.constant == 0:
                return _least(dim - Dim(((atoms, factor),)) + left * (factor // right.constant))
            case _:
                pass
    return dim
