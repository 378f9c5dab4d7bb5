"""Expressions of the loop IR in Python for Numba.

An offset becomes an index along each axis if these are certainly within bounds."""

from noyau.codegen import statements
from noyau.codegen.numba.index_bounds import is_inside, out_of_tiles
from noyau.codegen.numba.spellings import INTEGER_FUNCTIONS, KINDS, OF_BOOLS, PREFIX, NumbaNames, const_text, narrow
from noyau.codegen.statements import is_variable
from noyau.codegen.tables import as_operand, unwrap
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Atom, Dim, DimOp, Shape, exact_part, strides_of
from noyau.ir.loops import Alloc, Buffer, Expr, Kernel, Role


class NumbaExpressions(statements.Expressions):
    """Printer of the expressions of one kernel in Python for Numba.

    `flat`: packed buffers that the launch indexes by offsets, since some offset cannot become an index along axes."""

    language = "numba"
    prefix, integer_functions = PREFIX, INTEGER_FUNCTIONS
    const, narrow = staticmethod(const_text), staticmethod(narrow)
    names: NumbaNames

    def __init__(self, kernel: Kernel, names: NumbaNames) -> None:
        super().__init__(kernel, names)
        self.lengths: dict[str, tuple[Dim, Dim]] = {}  # `tile_of` of named lengths
        self.tiles: dict[str, tuple[Dim, Dim]] = {}  # the same for the variables of enclosing loops over tiles
        self.threads: frozenset[str] = frozenset()  # variables of the loops on threads
        self.flat: set[str] = set()

    # Memory.

    def cell(self, name: str, index: Shape) -> str:
        memory = self.memory[name]
        if is_variable(memory) or is_number(memory):
            return self.names.value(name)
        is_whole = isinstance(memory, Buffer) and (memory.strides is not None or len(memory.shape) == 1)
        if not is_whole and len(index) != 1:
            raise UnsupportedError(f"numba has no {len(index)} indices of {name}: flatten comes before it prints")
        if isinstance(memory, Buffer) and not is_whole:
            index = self.axes(memory, index)
        places = [self.place(dim, last=axis == len(index) - 1) for axis, dim in enumerate(index)]
        return f"{self.names.value(name)}[{', '.join(places) or '()'}]"

    def axes(self, buffer: Buffer, index: Shape) -> Shape:
        """The index along each axis of a packed buffer, or the offset, if the buffer is flat in this launch."""
        if not buffer.shape:
            return () if buffer.role is Role.OUTPUT else index
        indices = None if buffer.name in self.flat else self.unflatten(index[0], buffer.shape)
        if indices is None:
            self.flat.add(buffer.name)
            return index
        return indices

    def unflatten(self, offset: Dim, shape: Shape) -> Shape | None:
        """The index along each axis, if each but the first is certainly within bounds; else None."""
        indices = []
        for stride in strides_of(shape)[:-1]:
            whole, offset = exact_part(offset, stride)
            candidates = ((whole, offset), (whole - 1, offset + stride))  # the latter for a flipped axis
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
        """An index along an axis. If LLVM cannot prove that it is not negative, it is cast to unsigned: Numba would
        otherwise add code for indices from the end, which prevents vectorisation."""
        text = self.dim(dim)
        inner = set[Atom](self.extents.keys() - self.threads)
        plain = all(factor > 0 and inner.issuperset(atoms) for atoms, factor in dim.terms)
        return text if plain or (not last and text.isidentifier()) else f"u64({text})"

    # Calls.

    def select(self, condition: str, value: str, other: str) -> str:
        return f"({value} if {condition} else {other})"

    def own(self, function: str, operands: tuple[Expr, ...]) -> str | None:
        source = operands[0].dtype
        if function == "is_inf":
            return f"(abs({self.top(operands[0])}) == {const_text(float('inf'), source)})"
        if function == "rounded":  # the whole kernel fuses nothing then
            return self.expr(operands[0])
        if source is DType.BOOL and function in OF_BOOLS:
            left, right = map(self.expr, operands)
            return f"({left} {OF_BOOLS[function]} {right})"
        return None

    def convert(self, operand: Expr, dtype: DType) -> str:
        text = self.expr(operand)
        if dtype is operand.dtype:
            return text
        if dtype is DType.BOOL:
            return f"({text} != {const_text(0, operand.dtype)})"
        return f"{KINDS[dtype]}({unwrap(text)})"

    def operate(self, op: DimOp, left: str, right: str) -> str:
        """Python's division rounds down, as that of Dims."""
        if op.kind in ("max", "min"):
            return f"{op.kind}({unwrap(left)}, {unwrap(right)})"
        return f"({as_operand(left)} {'//' if op.kind == 'floordiv' else '%'} {as_operand(right)})"


def is_number(memory: Buffer | Alloc) -> bool:
    """Whether memory is an input without axes, which launches take as a number, as Numba demands in a prange."""
    return isinstance(memory, Buffer) and not memory.shape and memory.role is Role.INPUT
