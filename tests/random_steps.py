"""The steps that random graphs are made of: each takes a value or two and makes another one."""

from __future__ import annotations

import math

from noyau.dtypes import DType
from noyau.ir.dims import Dim, Shape, exact_part, indices, maximum
from noyau.ir.graph import Gather, Iota, Lookup, Node, Reduce, Scan, Select, expand_index
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS, dtype_of
from tests.random_views import pinned, sliced, view
from tests.sketching import STATIC, Sketch, Unfit, dtype, extent, part_of

ONE = Dim.of(1)
UNARY = [name for name, operator in OPERATORS.items() if operator.arity == 1 and name != "cast"]
BINARY = [name for name, operator in OPERATORS.items() if operator.arity == 2]
POSITIVE = {"log", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "power", "acosh"}
SMALL = {"exp", "exp2", "expm1", "sinh", "cosh", "asin", "acos", "atanh", "tan", "log1p"}
SINGULAR_AT_ONE = {"atanh", "log1p"}
USUAL = ("add", "add", "subtract", "multiply", "multiply", "divide", "maximum", "minimum")
USUAL_MONOIDS = ("sum", "sum", "max", "logsumexp", "variance", "argmax", "argmin")


# Scalar functions.


def unary(s: Sketch) -> Node:
    operand = s.pick()
    function = s.one_of([name for name in UNARY if operand.dtype.kind in OPERATORS[name].accepts])
    return apply(s, function, operand)


def apply(s: Sketch, function: str, operand: Node) -> Node:
    """The function of a value that was mostly moved to where the function is tame."""
    if function in POSITIVE and s.chance(90):
        operand = s.map("abs", operand)
        more = s.number(1.5 if function == "acosh" else 0.25, operand.dtype, operand.shape)
        operand = s.map("add", operand, more)
    if function in SMALL and s.chance(90):
        operand = s.map("tanh", operand)
        if function in SINGULAR_AT_ONE:  # an ulp of tanh, where it is nearly 1, is an infinity or none
            operand = s.map("multiply", operand, s.number(0.75, operand.dtype, operand.shape))
    return s.map(function, operand, dtype=dtype_of(function, (operand.dtype,)))


def binary(s: Sketch) -> Node:
    left = s.pick()
    able = [name for name in BINARY if left.dtype.kind in OPERATORS[name].accepts]
    usual = [name for name in USUAL if name in able]
    function = s.one_of(usual if usual and s.chance(60) else able)
    right = partner(s, left.shape, left.dtype)
    if function == "power" and left.dtype.is_float:
        left = s.map("add", s.map("abs", left), s.number(0.25, left.dtype, left.shape))
    elif function == "power":
        right = s.map("bitwise_and", right, s.number(3, right.dtype, right.shape))
    elif function.startswith("shift"):
        right = s.map("bitwise_and", right, s.number(127, right.dtype, right.shape))  # also beyond the width
    elif not left.dtype.is_float and function in ("divide", "floor_divide", "floor_mod", "fmod"):
        right = s.map("bitwise_or", right, s.number(1, right.dtype, right.shape))
    pair = (right, left) if s.chance(25) and function not in ("power", "divide", "fmod", "floor_mod") else (left, right)
    if not left.dtype.is_float and pair[0] is right and (function.startswith("shift") or "div" in function):
        pair = (left, right)
    return s.map(function, *pair, dtype=dtype_of(function, (left.dtype, left.dtype)))


def partner(s: Sketch, shape: Shape, wanted: DType) -> Node:
    """Another operand of that shape and dtype: a value, a number, or a new input that is expanded to it."""
    if s.chance(60):
        return s.cast(s.fitting(shape), wanted)
    if s.chance(40):
        value = s.one_of((0, 1, 2, 3)) if not wanted.is_float else s.one_of((0.5, 2.0, -1.25, 1e-5, 3.0))
        return s.number(value, wanted, shape)
    if s.chance(20):
        return run_time_one(s, shape, wanted)
    return s.fit(s.input(wanted, part_of(s, shape)), shape)


def run_time_one(s: Sketch, shape: Shape, wanted: DType) -> Node:
    """A new input one of whose extents is 1 or the whole one, as is only seen when it runs."""
    if not shape:
        raise Unfit
    axis = s.chooser.integer(0, len(shape) - 1)
    name = s.one_of([name for name in ("one_a", "one_b") if name not in s.sizes])
    s.sizes[name] = 1 if s.chance(60) else int(shape[axis].evaluate(s.sizes))
    own = (*shape[:axis], Dim.of(name), *shape[axis + 1 :])[s.chooser.integer(0, axis) :]
    made = s.input(wanted, own)
    return s.view(made, shape, expand_index(own, shape), "broadcast as it runs")


def either(s: Sketch) -> Node:
    """Two new inputs of which the one or the other is expanded, as is only seen when it runs."""
    if "one_a" in s.sizes or "one_b" in s.sizes:
        raise Unfit
    whole, swapped = s.one_of(STATIC), s.chance(50)
    s.sizes["one_a"], s.sizes["one_b"] = (whole, 1) if swapped else (1, whole)
    rest = s.pick().shape[-1:]
    left, right = (s.input(DType.F32, (name, *rest)) for name in ("one_a", "one_b"))
    shape = (maximum(Dim.of("one_a"), Dim.of("one_b")), *rest)
    pair = [s.view(node, shape, expand_index(node.shape, shape), "broadcast as it runs") for node in (left, right)]
    return s.map(s.one_of(("add", "multiply")), *pair)


def where(s: Sketch) -> Node:
    left = s.pick()
    right = partner(s, left.shape, left.dtype)
    if s.chance(40) and left.dtype is not DType.BOOL:
        condition = s.map(s.one_of(("less", "equal", "greater_equal")), left, right, dtype=DType.BOOL)
    else:
        condition = partner(s, left.shape, DType.BOOL)
    return s.map("where", condition, left, right, dtype=left.dtype)


def cast(s: Sketch) -> Node:
    operand = s.pick()
    return s.cast(operand, s.one_of([made for made in (dtype(s), dtype(s)) if made is not operand.dtype]))


def there_and_back(s: Sketch) -> Node:
    """To whole numbers and back, or to two other dtypes; then together with what it was."""
    operand = s.pick(lambda node: node.dtype is not DType.BOOL)
    whole = s.cast(operand, s.one_of((DType.I32, DType.I64, DType.BOOL)))
    back = s.cast(whole, operand.dtype)
    if s.chance(50):
        other = s.cast(s.cast(operand, DType.BOOL), operand.dtype)
        return s.map("add", back, other)
    return s.map(s.one_of(("subtract", "maximum")), operand, back) if s.chance(50) else back


def iota(s: Sketch) -> Node:
    """Indices as values: positions, differences of them, sizes; often compared, as a mask."""
    shape = s.pick().shape
    here = indices(len(shape))
    choices = [Dim.of(3), *here, *(dim - 1 - at for dim, at in zip(shape, here, strict=True)), *shape]
    if len(here) > 1:
        choices += [here[-1] - here[-2], here[-1] * 2 + here[-2]]
    index = s.one_of(choices) + s.chooser.integer(-1, 2)
    index = s.one_of([index, index, index // 2, index % 3])
    wanted = s.one_of((DType.I64, DType.I64, DType.I32, DType.F32))
    made = s.add(Iota(index), (), wanted, shape)
    return s.map("less", made, s.number(2, wanted, shape), dtype=DType.BOOL) if s.chance(40) else made


# Pieces.


def concat(s: Sketch) -> Node:
    """Two or three values along an axis: of one shape, or a new one of another extent there."""
    first = s.pick(lambda node: bool(node.shape))
    axis = s.chooser.integer(0, len(first.shape) - 1)
    pieces = [first]
    for _ in range(s.chooser.integer(1, 2)):
        if s.chance(70):
            pieces.append(s.cast(s.fitting(first.shape), first.dtype))
        else:
            dim = extent(s, [first.shape[axis]])
            pieces.append(s.input(first.dtype, (*first.shape[:axis], dim, *first.shape[axis + 1 :])))
    if s.chance(40):
        pieces.reverse()
    return join(s, pieces, axis, "concat")


def join(s: Sketch, pieces: list[Node], axis: int, tag: str) -> Node:
    starts, shape = [Dim.of(0)], pieces[0].shape
    for piece in pieces:
        starts.append(starts[-1] + piece.shape[axis])
    total = (*shape[:axis], starts[-1], *shape[axis + 1 :])
    return s.add(Select(axis, tuple(starts[:-1])), pieces, pieces[0].dtype, total, tag)


def pad(s: Sketch) -> Node:
    """A number before, after, or on both sides."""
    operand = s.pick(lambda node: bool(node.shape))
    axis, shape = s.chooser.integer(0, len(operand.shape) - 1), operand.shape

    def side() -> list[Node]:
        count = Dim.of(s.chooser.integer(0, 3))
        whole = (*shape[:axis], count, *shape[axis + 1 :])
        return [s.number(s.one_of((0, 1)), operand.dtype, whole)] if count.terms else []

    return join(s, [*side(), operand, *side()], axis, "pad")


def rotate(s: Sketch) -> Node:
    """The second half, negated, before the first."""
    operand = s.pick(
        lambda n: bool(n.shape) and n.dtype is not DType.BOOL and not exact_part(n.shape[-1], Dim.of(2))[1].terms
    )
    axis = len(operand.shape) - 1
    half = operand.shape[axis] // 2
    low = s.view(operand, *sliced(operand.shape, axis, Dim.of(0), 1, half), "slice")
    high = s.view(operand, *sliced(operand.shape, axis, half, 1, half), "slice")
    return join(s, [s.map("negative", high), low], axis, "rotate")


# Gathers.


def gather(s: Sketch) -> Node:
    """Rows by their number: of a new input, or of a value that is already in range."""
    table = s.pick(lambda node: bool(node.shape))
    axis = s.chooser.integer(0, len(table.shape) - 1)
    top = s.value(table).shape[axis]
    at = ids(s, top, s.pick(lambda node: len(node.shape) < 3).shape)
    rank = len(at.shape)
    here = indices(len(table.shape) - 1 + rank)
    index = (*here[:axis], Lookup(1, here[axis : axis + rank]), *here[axis + rank :])
    shape = (*table.shape[:axis], *at.shape, *table.shape[axis + 1 :])
    return s.add(Gather(index), (table, at), table.dtype, shape, "rows")


def ids(s: Sketch, top: int, shape: Shape) -> Node:
    """Indices below `top`."""

    def fits(node: Node) -> bool:
        array = s.value(node)
        inside = node.dtype in (DType.I32, DType.I64) and (not array.size or (array.min() >= 0 and array.max() < top))
        return inside and s.below.get(node.output, 0) <= top

    if s.chance(40) and any(map(fits, s.nodes.values())):
        return s.pick(fits)
    return s.input(s.one_of((DType.I64, DType.I64, DType.I32)), shape, below=top)


def gather_cells(s: Sketch) -> Node:
    """Cell by cell along an axis, or by two indices at once."""
    table = s.pick(lambda node: bool(node.shape))
    axis = s.chooser.integer(0, len(table.shape) - 1)
    here = indices(len(table.shape))
    if len(table.shape) == 2 and s.chance(30):
        shape = s.pick(lambda node: len(node.shape) < 3).shape
        first, second = (ids(s, top, shape) for top in s.value(table).shape)
        if first.shape != second.shape:
            raise Unfit
        at = indices(len(first.shape))
        return s.add(Gather((Lookup(1, at), Lookup(2, at))), (table, first, second), table.dtype, first.shape, "points")
    at_node = ids(s, s.value(table).shape[axis], table.shape)
    if at_node.shape != table.shape:
        raise Unfit
    index = (*here[:axis], Lookup(1, here), *here[axis + 1 :])
    return s.add(Gather(index), (table, at_node), table.dtype, table.shape, "cells")


# Reductions.


def reduce(s: Sketch) -> Node:
    """Any axes with any monoid; often expanded back, into an operation with what was reduced."""
    operand = s.pick(lambda node: bool(node.shape))
    table = [(name, monoid) for name, monoid in MONOIDS.items() if not monoid.ordered]  # those of other tests' making
    able = [name for name, monoid in table if operand.dtype.kind in monoid.accepts]
    monoid = s.one_of([name for name in USUAL_MONOIDS if name in able] if s.chance(60) else able)
    # The position of argmax over several axes is that of the flat index.
    several = monoid.startswith("arg") and len(operand.shape) > 1 and s.chance(70)
    made = over(s, monoid, operand, tuple(range(len(operand.shape)))[-3:] if several else axes_of(s, operand))
    if s.chance(60) and MONOIDS[monoid].result(operand.dtype) is operand.dtype and operand.dtype is not DType.BOOL:
        back = s.fit(made, operand.shape)
        return s.map(s.one_of(("subtract", "multiply", "add", "maximum")), operand, back)
    return made


def axes_of(s: Sketch, operand: Node) -> tuple[int, ...]:
    if s.chance(35):
        return (len(operand.shape) - 1,)
    axes = [axis for axis in range(len(operand.shape)) if s.chance(60)]
    return tuple(axes) or (s.chooser.integer(0, len(operand.shape) - 1),)


def over(s: Sketch, monoid: str, operand: Node, axes: tuple[int, ...]) -> Node:
    left = [dim for axis, dim in enumerate(operand.shape) if axis not in axes]
    made = s.add(Reduce(monoid, axes), (operand,), MONOIDS[monoid].result(operand.dtype), left)
    if monoid.startswith("arg"):
        s.below[made.output] = math.prod(s.value(operand).shape[axis] for axis in axes)
    return made


def keeping(s: Sketch, monoid: str, operand: Node, axes: tuple[int, ...]) -> Node:
    """A reduction, expanded to its operand's shape."""
    made = over(s, monoid, operand, axes)
    here = [dim for axis, dim in enumerate(indices(len(operand.shape))) if axis not in axes]
    return s.view(made, operand.shape, here, "broadcast")


def scan(s: Sketch) -> Node:
    """The running result along an axis, in either direction, with or without the value itself."""
    operand = s.pick(lambda node: bool(node.shape))
    able = [name for name in ("sum", "prod", "max", "min") if operand.dtype.kind in MONOIDS[name].accepts]
    axis = s.one_of((len(operand.shape) - 1, s.chooser.integer(0, len(operand.shape) - 1)))
    kind = Scan(s.one_of(able), axis, exclusive=s.chance(30), reverse=s.chance(30))
    return s.add(kind, (operand,), operand.dtype, operand.shape)


def softmax(s: Sketch) -> Node:
    operand = s.pick(lambda node: bool(node.shape) and node.dtype.is_float)
    axes = axes_of(s, operand)
    powers = s.map("exp", s.map("subtract", operand, keeping(s, "max", operand, axes)))
    return s.map("divide", powers, keeping(s, "sum", powers, axes))


def norm(s: Sketch) -> Node:
    operand = s.pick(lambda node: bool(node.shape) and node.dtype.is_float)
    axes = axes_of(s, operand)
    squares = keeping(s, "sum", s.map("multiply", operand, operand), axes)
    scale = s.map("rsqrt", s.map("add", squares, s.number(0.01, operand.dtype, operand.shape)))
    made = s.map("multiply", operand, scale)
    return s.map("multiply", made, partner(s, operand.shape, operand.dtype)) if s.chance(50) else made


STEPS = (
    (4, unary),
    (7, binary),
    (1, either),
    (3, where),
    (2, cast),
    (1, there_and_back),
    (2, iota),
    (7, view),
    (1, pinned),
    (2, concat),
    (1, pad),
    (1, rotate),
    (2, gather),
    (1, gather_cells),
    (4, reduce),
    (1, scan),
    (1, softmax),
    (1, norm),
)
