"""Expressions of the loop IR in C."""

from collections.abc import Iterator

from noyau.codegen import statements
from noyau.codegen.c.spellings import INTEGER_FUNCTIONS, PREFIX, TYPES, Open, beside, const_text, narrow, pairs_of
from noyau.codegen.identifiers import Scopes
from noyau.codegen.statements import is_variable
from noyau.codegen.tables import as_operand, unwrap
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, DimOp, Shape, never_negative
from noyau.ir.loops import Buffer, Call, Expr, InWholeLines, Kernel, Load, Loop, Store
from noyau.ir.ranges import at_least_one, lowest


class CExpressions(statements.Expressions):
    """Printer of the expressions of one kernel in C."""

    language = "c"
    prefix, integer_functions = PREFIX, INTEGER_FUNCTIONS
    const, narrow = staticmethod(const_text), staticmethod(narrow)

    def __init__(self, kernel: Kernel, names: Scopes) -> None:
        super().__init__(kernel, names)
        self.absurd = False  # whether sizes are unchecked, so that arithmetic on them may overflow
        self.pairs = Open()

    def cell(self, name: str, index: Shape) -> str:
        memory = self.memory[name]
        if isinstance(memory, Buffer) and memory.strides is not None:
            index = (sum((at * stride for at, stride in zip(index, memory.strides, strict=True)), Dim.of(0)),)
        if len(index) != 1:
            raise UnsupportedError(f"c has no {len(index)} indices of {name}: flatten comes before it prints")
        return self.names.value(name) if is_variable(memory) else f"{self.names.value(name)}[{self.dim(index[0])}]"

    def load(self, load: Load) -> str:
        half = self.half(load) if self.pairs.words else None
        return super().load(load) if half is None else half

    def in_whole_lines(self, tile: InWholeLines) -> str:
        whole = [] if tile.length.constant is not None else [f"{self.dim(tile.length)} == {tile.cells}"]
        begins = [f"noyau_begins_line(&{self.cell(name, index)})" for name, index in tile.places]
        return " && ".join([*whole, *begins])

    def half(self, load: Load) -> str | None:
        """A cell of a pair that was loaded as one word; None for any other cell."""
        place = (load.buffer, load.index)
        for at, name in ((place, "noyau_bf16_low_to_f32"), (beside(place, -1), "noyau_bf16_high_to_f32")):
            if at in self.pairs.words:
                self.functions.add(name)
                return f"{name}({self.pairs.words[at]})"
        return None

    def select(self, condition: str, value: str, other: str) -> str:
        return f"({condition} ? {value} : {other})"

    def own(self, function: str, operands: tuple[Expr, ...]) -> str | None:
        if function != "is_inf":
            return None
        text = self.expr(operands[0])
        return f"(({text} == INFINITY) | ({text} == -INFINITY))"

    def cast(self, operand: Expr, dtype: DType) -> str:
        match operand:
            case Call("cast", (value,), DType.F16) if value.dtype is dtype is DType.F32:
                return self.function("noyau_f32_to_f16_to_f32", (value,))
            case _:
                return super().cast(operand, dtype)

    def convert(self, operand: Expr, dtype: DType) -> str:
        text = self.expr(operand)
        return f"({text} != 0)" if dtype is DType.BOOL else f"(({TYPES[dtype]}){text})"

    def operate(self, op: DimOp, left: str, right: str) -> str:
        """C's division truncates and that of Dims rounds down, so C's is used only if nothing can be negative. A size
        as a divisor may be 0, unless an enclosing loop over it runs."""
        if op.kind in ("max", "min"):
            return self.integer_call(f"{op.kind}imum", DType.I64, unwrap(left), unwrap(right))
        if self.is_natural(op.left) and self.is_positive(op.right):
            return f"({as_operand(left)} {'/' if op.kind == 'floordiv' else '%'} {as_operand(right)})"
        function = "floor_divide" if op.kind == "floordiv" else "floor_mod"
        return self.integer_call(function, DType.I64, unwrap(left), unwrap(right))

    def is_positive(self, dim: Dim) -> bool:
        match dim.terms:
            case (((DimOp(kind="max") as op,), 1),):
                return self.is_positive(op.left) or self.is_positive(op.right)
            case _:
                return (dim.constant or 0) > 0 if self.absurd else self.is_natural(dim - 1)

    def is_natural(self, dim: Dim) -> bool:
        """Whether a Dim is certainly >= 0 here, where all enclosing loops run."""
        match dim.terms:
            case (((DimOp(kind="max") as op,), -1),):
                return self.is_natural(-op.left) and self.is_natural(-op.right)
            case _:
                pass
        if any(self.is_rest(dim, name, extent) for name, extent in self.extents.items()):
            return True
        low = lowest(dim, self.required | self.extents)
        running = frozenset[str]().union(*(at_least_one(extent) for extent in self.extents.values()))
        return low is not None and never_negative(low, running)

    def is_rest(self, dim: Dim, name: str, extent: Dim) -> bool:
        """Whether a Dim is the rest of a length at the tile `name` of a loop over its tiles."""
        step = -dict(dim.terms).get((name,), 0)
        length = dim + Dim.of(name) * step
        return step > 0 and name not in length.names and extent == (length + (step - 1)) // step

    # Pairs.

    def open_pairs(self, loop: Loop) -> Iterator[str]:
        """The declarations of words with two neighbours that a loop reads; pairs that it stores are recorded."""
        loaded, stored = pairs_of(loop, self.memory)
        self.pairs = Open(stored=frozenset(stored))
        self.preludes |= {"pairs.h"} if loaded or stored else set()
        for name, index in loaded:
            word = self.names.bind(f"pair {len(self.pairs.words)}", f"{name}_pair")
            self.pairs.words[name, index] = word
            yield f"    const uint32_t {word} = noyau_pair(&{self.cell(name, index)});"

    def in_pair(self, store: Store) -> str | None:
        """The Store of one cell of a pair: the first is held until the second; None for any other Store."""
        place, pairs = (store.buffers[0], store.index), self.pairs
        if not pairs.stored:
            return None
        if place in pairs.stored:
            even = self.names.bind(f"even {len(pairs.halves)}", f"{place[0]}_even")
            pairs.halves[place] = even
            return f"const float {even} = {self.top(store.values[0])};"
        first = beside(place, -1)
        if first not in pairs.halves:
            return None
        self.functions.add("noyau_f32_to_bf16_pair")
        both = f"noyau_f32_to_bf16_pair({pairs.halves[first]}, {self.top(store.values[0])})"
        return f"noyau_store_pair(&{self.cell(*first)}, {both});"
