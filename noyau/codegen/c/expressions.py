"""CExpressions of the loop IR as C text."""

from __future__ import annotations

from noyau.codegen import expressions
from noyau.codegen.c.packed_pairs import Open, before
from noyau.codegen.c.tables import INTEGER_FUNCTIONS, PREFIX, TYPES, const_text, narrow
from noyau.codegen.expressions import is_variable
from noyau.codegen.identifiers import Scopes
from noyau.codegen.tables import closed, opened
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, DimOp, Shape, never_negative
from noyau.ir.loops import Buffer, Expr, InWholeLines, Kernel, Load
from noyau.ir.ranges import at_least_one, lowest


class CExpressions(expressions.Expressions):
    """The expressions of one kernel in C."""

    language = "c"
    prefix, integer_functions = PREFIX, INTEGER_FUNCTIONS

    def __init__(self, kernel: Kernel, names: Scopes) -> None:
        super().__init__(kernel, names)
        self.absurd = False  # whether sizes may be so large that arithmetic on them overflows
        self.pairs = Open()

    def const(self, value: float | int | bool, dtype: DType) -> str:
        return const_text(value, dtype)

    def cell(self, name: str, index: Shape) -> str:
        memory = self.memory[name]
        if isinstance(memory, Buffer) and memory.strides is not None:
            index = (sum((at * stride for at, stride in zip(index, memory.strides, strict=True)), Dim.of(0)),)
        if len(index) != 1:
            raise UnsupportedError(f"c has no {len(index)} indices of {name}: flatten comes before it prints")
        if is_variable(memory):
            return self.names.value(name)
        return f"{self.names.value(name)}[{self.dim(index[0])}]"

    def load(self, load: Load) -> str:
        if self.pairs.words and (half := self.half(load)) is not None:
            return half
        return super().load(load)

    def in_whole_lines(self, tile: InWholeLines) -> str:
        whole = [] if tile.length.constant is not None else [f"{self.dim(tile.length)} == {tile.cells}"]
        begins = [f"noyau_begins_line(&{self.cell(name, index)})" for name, index in tile.places]
        return " && ".join([*whole, *begins])

    def half(self, load: Load) -> str | None:
        """A cell of a pair that was loaded as a word."""
        place = (load.buffer, load.index)
        for at, name in ((place, "noyau_bf16_low_to_f32"), (before(place), "noyau_bf16_high_to_f32")):
            if at in self.pairs.words:
                self.functions.add(name)
                return f"{name}({self.pairs.words[at]})"
        return None

    def chosen(self, condition: str, value: str, other: str) -> str:
        return f"({condition} ? {value} : {other})"

    def own(self, function: str, operands: tuple[Expr, ...]) -> str | None:
        if function != "is_inf":
            return None
        text = self.expr(operands[0])
        return f"(({text} == INFINITY) | ({text} == -INFINITY))"

    def narrow(self, text: str, dtype: DType) -> str:
        return narrow(text, dtype)

    def converted(self, operand: Expr, dtype: DType) -> str:
        text = self.expr(operand)
        return f"({text} != 0)" if dtype is DType.BOOL else f"(({TYPES[dtype]}){text})"

    def operate(self, op: DimOp, left: str, right: str) -> str:
        """C divides towards zero, Dims downwards: one stands for the other only where nothing can be negative. A size
        that divides may be 0 where nothing makes sure that its loop runs."""
        if op.kind == "max":
            return self.integer_call("maximum", DType.I64, opened(left), opened(right))
        if op.kind == "min":
            return self.integer_call("minimum", DType.I64, opened(left), opened(right))
        if self.is_natural(op.left) and self.is_positive(op.right):
            return f"({closed(left)} {'/' if op.kind == 'floordiv' else '%'} {closed(right)})"
        function = "floor_divide" if op.kind == "floordiv" else "floor_mod"
        return self.integer_call(function, DType.I64, opened(left), opened(right))

    def is_positive(self, dim: Dim) -> bool:
        match dim.terms:
            case (((DimOp(kind="max") as op,), 1),):
                return self.is_positive(op.left) or self.is_positive(op.right)
            case _:
                return (dim.constant or 0) > 0 if self.absurd else self.is_natural(dim - 1)

    def is_natural(self, dim: Dim) -> bool:
        """Whether it is surely >= 0 here, where every open loop runs."""
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
        """Whether it is what is left of a length when a loop has come to its tile `name`."""
        step = -dict(dim.terms).get((name,), 0)
        length = dim + Dim.of(name) * step
        return step > 0 and name not in length.names and extent == (length + (step - 1)) // step
