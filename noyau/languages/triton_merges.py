"""Monoids in Triton: how a tile is reduced, and how two states are merged."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.dtypes import DType
from noyau.ir.algebra import Symbolic
from noyau.ir.loops import Expr, Kernel, Var
from noyau.ir.monoids import MONOIDS
from noyau.ir.walk import rewrite_expression
from noyau.languages.shorter import steps_of
from noyau.languages.triton_expressions import Expressions, Used
from noyau.languages.triton_names import Variables
from noyau.languages.triton_tables import TYPES

WORDS = {"max": "max", "min": "min", "any": "max", "all": "min"}  # of integers and bools


def reduced(
    monoid: str, states: Sequence[str], axis: int, dtypes: Sequence[DType], rank: int, said: Expressions
) -> str:
    """The states of a tile merged along an axis, which stays with one cell where there are others."""
    kept = f"axis={axis}, keep_dims=True" if rank > 1 else f"axis={axis}"
    dtype, (first, *_) = dtypes[0], states
    if dtype is DType.BOOL:
        return f"tl.{WORDS[monoid]}(({first}).to(tl.int32), {kept}) != 0"
    if monoid in ("sum", *WORDS) and (monoid == "sum" or not dtype.is_float):
        text = f"tl.{WORDS.get(monoid, monoid)}({first}, {kept})"
        return text if dtype.is_float or dtype.bytes >= 4 else f"{text}.to({TYPES[dtype]})"
    name = merge_name(monoid, dtype, _loosely(monoid, dtype, said))
    given = first if len(states) == 1 else f"({', '.join(states)})"
    return f"tl.reduce({given}, {kept.replace('axis=', '', 1).partition(',')[0]}, {name}" + (
        ", keep_dims=True)" if rank > 1 else ")"
    )


def merged(monoid: str, left: Sequence[str], right: Sequence[str], dtypes: Sequence[DType], said: Expressions) -> str:
    """Two states, the earlier first, as one."""
    if monoid == "sum":
        return f"{left[0]} + {right[0]}"
    name = merge_name(monoid, dtypes[0], _loosely(monoid, dtypes[0], said))
    return f"{name}({', '.join([*left, *right])})"


def _loosely(monoid: str, dtype: DType, said: Expressions) -> bool:
    """Whether states are merged loosely; the merge is one that the text needs."""
    loose = said.loose and monoid == "logsumexp" and dtype is DType.F32
    said.used.merges.add((monoid, dtype, loose))
    return loose


def merge_name(monoid: str, dtype: DType, loose: bool = False) -> str:
    return f"noyau_{'near_' * loose}merge_{monoid}_{dtype.value}"


def merge_function(monoid: str, dtype: DType, used: Used, loose: bool = False) -> str:
    """The function that merges two states."""
    dtypes = MONOIDS[monoid].states(dtype)
    sides = [tuple(Var(f"{side}{part}", d) for part, d in enumerate(dtypes)) for side in "ab"]
    names = [var.name for side in sides for var in side]
    values: tuple[Expr, ...] = MONOIDS[monoid].merge(Symbolic(), *sides)
    variables = Variables(Kernel(merge_name(monoid, dtype, loose), (), (), ()))
    said = Expressions(Kernel("", (), (), ()), variables, used)
    said.loose = loose
    for name in names:
        variables.alias(name, variables.fresh(name))
    lines, known = list[str](), dict[Expr, Expr]()
    for step in steps_of(values):
        inner = rewrite_expression(step, lambda expr: known.get(expr, expr))
        name = variables.fresh(f"t{len(lines)}")
        lines.append(f"    {name} = {said.top(inner)}")
        variables.alias(name, name)
        known[inner] = Var(name, step.dtype)
    results = ", ".join(said.top(rewrite_expression(value, lambda expr: known.get(expr, expr))) for value in values)
    return "\n".join(
        [f"@triton.jit\ndef {merge_name(monoid, dtype, loose)}({', '.join(names)}):", *lines, f"    return {results}"]
    )
