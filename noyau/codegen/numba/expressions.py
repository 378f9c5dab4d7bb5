"""The spellings of language `numba` (types, operators, functions, identifiers), and expressions of the loop IR in it.

Numba computes integers in 64 bits, and a float32 beside a float64 or an integer in float64: every number in the text
has the type that it is computed in, and results of narrower integers are cut back. No identifier is a word of Python, a
name that the text itself uses, or one variable of two types, which Numba would make one type of. An offset is taken
apart into an index along each axis where each is certainly inside.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from noyau.codegen import statements
from noyau.codegen.identifiers import Scopes
from noyau.codegen.statements import is_variable
from noyau.codegen.tables import closed, opened, parameters_of
from noyau.dtypes import CELLS, DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Atom, Dim, DimOp, Shape, exact_part, never_negative, strides_of
from noyau.ir.loops import Alloc, Buffer, Expr, Kernel, Role
from noyau.ir.ranges import at_least_one, highest, lowest

# What kernels compute in, by the short names that the text gives to NumPy's types; halves and float8 are bits.
KINDS = {dtype: dtype.storage.value for dtype in CELLS}
NUMPY = {
    **{f"i{bits}": f"np.int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"np.uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"np.float{bits}" for bits in (32, 64)},
}
PREFIX = {"negative": "-", "logical_not": "not ", "bitwise_not": "~"}
OF_BOOLS = {"maximum": "|", "minimum": "&"}

_DIVIDES = "if b == T(0):\n    return a\n"
_BY_MINUS_ONE = "if b == T(-1):\n    return T(-a)\n"
_NOTHING_LEFT = "if (b == T(-1)) | (b == T(0)):\n    return T(0)\n"
_MULTIPLIES = (
    "made = T(1)\nwhile b > T(0):\n    if (b & T(1)) != T(0):\n        made = T(made * a)\n"
    "    a = T(a * a)\n    b = T(b >> T(1))\nreturn made"
)

# Bodies over T, of a and b, of signed and of unsigned integers; a division by zero is one by one.
INTEGER_FUNCTIONS = {
    "abs": ("return T(-a) if a < T(0) else a", "return a"),
    "sign": ("return T(1) if a > T(0) else T(-1) if a < T(0) else T(0)", "return T(1) if a > T(0) else T(0)"),
    **dict.fromkeys(("maximum", "fmax"), ("return a if a > b else b", "return a if a > b else b")),
    **dict.fromkeys(("minimum", "fmin"), ("return a if a < b else b", "return a if a < b else b")),
    "divide": (
        f"{_BY_MINUS_ONE}{_DIVIDES}"
        "whole = T(a // b)\nreturn T(whole + T(1)) if (a % b != T(0)) & ((a < T(0)) != (b < T(0))) else whole",
        f"{_DIVIDES}return T(a // b)",
    ),
    "fmod": (
        f"{_NOTHING_LEFT}rest = T(a % b)\n"
        "return T(rest - b) if (rest != T(0)) & ((rest < T(0)) != (a < T(0))) else rest",
        "return T(a % b) if b != T(0) else T(0)",
    ),
    "floor_divide": (f"{_BY_MINUS_ONE}{_DIVIDES}return T(a // b)", f"{_DIVIDES}return T(a // b)"),
    "floor_mod": (f"{_NOTHING_LEFT}return T(a % b)", "return T(a % b) if b != T(0) else T(0)"),
    "power": (
        "if b < T(0):\n    odd = T(-1) if (b & T(1)) != T(0) else T(1)\n"
        f"    return T(1) if a == T(1) else odd if a == T(-1) else T(0)\n{_MULTIPLIES}",
        _MULTIPLIES,
    ),
    "shift_left": (
        "return T(a << b) if (b >= T(0)) & (b < T(WIDTH)) else T(0)",
        "return T(a << b) if b < T(WIDTH) else T(0)",
    ),
    "shift_right": (
        "return T(a >> b) if (b >= T(0)) & (b < T(WIDTH)) else T(0)",
        "return T(a >> b) if b < T(WIDTH) else T(0)",
    ),
}


def integer_function(function: str, dtype: str) -> str:
    """The Python function of an integer operation, as its text."""
    signed, unsigned = INTEGER_FUNCTIONS[function]
    kind = DType(dtype)
    body = signed if kind.kind == "int" else unsigned
    body = body.replace("T(WIDTH)", f"T({8 * kind.bytes})").replace("T(", f"{KINDS[kind]}(")
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"@scalar\ndef noyau_{function}_{dtype}({', '.join(parameters_of(function))}):\n{lines}"


def const_text(value: float | int | bool, dtype: DType) -> str:
    """A number in Python, as an operand of anything."""
    if dtype.is_float8:
        value = int(np.array(value, dtype.numpy).view(np.uint8))
    text = literal_text(value, KINDS[dtype.compute])
    return f"({text})" if text.startswith("-") else text


def literal_text(value: float, kind: str) -> str:
    """A number of a kind in Python: float64 and int64 are its own, the others are converted."""
    if kind == "bool":
        return str(bool(value))
    if kind not in ("f32", "f64"):
        return str(int(value)) if kind == "i64" else f"{kind}({int(value)})"
    wide = float(value)
    if kind == "f32":
        with np.errstate(over="ignore"):
            single = np.float32(wide)
        short = float(str(single))  # a few digits, that mean the same number
        wide = short if np.float32(short) == single else float(single)
    text = "np.nan" if math.isnan(wide) else f"{'-' * (wide < 0)}np.inf" if math.isinf(wide) else repr(wide)
    return text if kind == "f64" else f"f32({text})"


def narrow(text: str, dtype: DType) -> str:
    """Numba has computed small integers in 64 bits: cut the result back."""
    return f"{KINDS[dtype]}({text})" if dtype.kind in ("int", "uint") else f"({text})"


# Beyond those that fitting() knows: what the text calls, and what it calls its own names.
RESERVED = frozenset(
    """numba np math types ir cgutils arrayobj intrinsic prange scalar status items parts part range min max abs round
    print exit match case type""".split()
) | frozenset(NUMPY)


class NumbaNames(Scopes):
    """Names of a kernel to Python identifiers.

    A Python function has one scope: what a block names is free again after it only for variables of its own type.
    `kind` is the type of what is bound next."""

    def __init__(self, kernel: Kernel) -> None:
        self.kind = ""
        self.kinds: dict[str, str] = {}
        launches = {f"{kernel.name}_{number}" for number in range(len(kernel.launches))}
        self.reserved = RESERVED | launches | {kernel.name}
        super().__init__(kernel)

    @contextmanager
    def of(self, kind: str) -> Iterator[NumbaNames]:
        """Give names that are bound within this type."""
        before, self.kind = self.kind, kind
        yield self
        self.kind = before

    def forget(self) -> None:
        """Nothing of what was bound but buffers and sizes is known any more, and nothing has been used."""
        self.used.clear()
        self.kinds = {}

    def fresh(self, stem: str) -> str:
        """An identifier that nothing in sight has, and no variable of another type had."""
        name = super().fresh(f"v_{stem}" if stem in self.reserved else stem)
        self.kinds[name] = self.kind
        return name

    def fits(self, name: str) -> bool:
        return self.kinds.get(name, self.kind) == self.kind


class NumbaExpressions(statements.Expressions):
    """The expressions of one kernel in Python for Numba.

    `flat` are the packed buffers of the launch that are indexed by one offset, for some index into them is none along
    their axes."""

    language = "numba"
    prefix, integer_functions = PREFIX, INTEGER_FUNCTIONS
    const, narrow = staticmethod(const_text), staticmethod(narrow)
    names: NumbaNames

    def __init__(self, kernel: Kernel, names: NumbaNames) -> None:
        super().__init__(kernel, names)
        self.lengths: dict[str, tuple[Dim, Dim]] = {}  # what `tile_of` says of those that have a name
        self.tiles: dict[str, tuple[Dim, Dim]] = {}  # the same of the loops over them that are open
        self.threads: frozenset[str] = frozenset()  # the variables of the loops on threads
        self.flat: set[str] = set()

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
