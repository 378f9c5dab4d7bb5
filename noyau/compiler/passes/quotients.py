"""Rules of products, quotients and powers.

x / sqrt(v), x * reciprocal(sqrt(v)) and x * rsqrt(v) are x * rsqrt(v); so is x * v ** -0.5, where v is never below 0
(`is_natural`). x / 8 is x * 0.125, and x * -1 is -x. x * reciprocal(v) is x / v, which is finite where reciprocal(v)
overflows and the truth does not; y / (1 + exp(-x)) is y * sigmoid(x), which is not 0 yet where exp(-x) overflows;
(x / 2) * (2 * y) is x * y, which rounds once.
"""

from __future__ import annotations

import math
from dataclasses import replace

import ml_dtypes

from noyau.compiler.passes.patterns import everywhere, function_of, number_of, operand_beneath, under_views, views_of
from noyau.compiler.passes.rewrite import Change, Rebuilder, through_views
from noyau.compiler.passes.signs import is_natural
from noyau.dtypes import DType
from noyau.ir.graph import Map, Node


def divide(node: Node, rebuilder: Rebuilder) -> Change:
    if not node.dtype.is_float:
        return (node,)
    above, below = node.inputs
    if number_of(rebuilder, below) == 1:
        return above
    if number_of(rebuilder, above) == 1:
        return (replace(node, kind=Map("reciprocal"), inputs=(below,)),)
    inverse = _inverse_of_power_of_two(number_of(rebuilder, below), node.dtype)
    nodes = everywhere(rebuilder, inverse, node) if inverse else _inverse(rebuilder, below)
    return (*nodes, replace(node, kind=Map("multiply"), inputs=(above, nodes[-1].output))) if nodes else (node,)


def reciprocal(node: Node, rebuilder: Rebuilder) -> Change:
    nodes = _inverse(rebuilder, node.inputs[0])
    return (*nodes[:-1], replace(nodes[-1], output=node.output)) if nodes else (node,)


def multiply(node: Node, rebuilder: Rebuilder) -> Change:
    for this, other in (node.inputs, node.inputs[::-1]):
        if number_of(rebuilder, this) == 1:
            return other
        if number_of(rebuilder, this) == -1:
            return (replace(node, kind=Map("negative"), inputs=(other,)),)
        if node.dtype.is_float and (factors := _of_powers(rebuilder, this, other)):
            return (replace(node, inputs=factors),)
        if node.dtype.is_float and node.dtype is not DType.F64 and function_of(rebuilder, this) == "reciprocal":
            views, below = operand_beneath(rebuilder, this)
            return (*views, replace(node, kind=Map("divide"), inputs=(other, below)))
    return (node,)


def _of_powers(rebuilder: Rebuilder, this: str, other: str) -> tuple[str, str] | None:
    """The a and b of (a 2^k) (b 2^-k)."""
    (one, power), (two, inverse) = _scaled(rebuilder, this), _scaled(rebuilder, other)
    return (one, two) if power * inverse == 1 and power != 1 else None


def _scaled(rebuilder: Rebuilder, name: str) -> tuple[str, float]:
    """The a and the 2^k of a value a 2^k."""
    node = rebuilder.nodes[name]
    if node.kind == Map("multiply"):
        for this, other in (node.inputs, node.inputs[::-1]):
            number = number_of(rebuilder, this)
            if number and math.isfinite(number) and abs(math.frexp(number)[0]) == 0.5:
                return other, number
    return name, 1.0


def _inverse_of_power_of_two(number: float | None, dtype: DType) -> float | None:
    """The inverse of 2 ** k or -2 ** k: a quotient by the one is the product with the other, to the last bit."""
    if not number or not math.isfinite(number) or abs(math.frexp(number)[0]) != 0.5:
        return None
    info = ml_dtypes.finfo(dtype.numpy)
    return 1 / number if float(info.smallest_normal) * abs(number) <= 1 <= float(info.max) * abs(number) else None


def _inverse(rebuilder: Rebuilder, name: str) -> list[Node]:
    """Nodes that give 1 / v for a value v that is sqrt(u) or 1 + exp(u), seen through views; none for others."""
    maker, views = through_views(rebuilder.nodes, name), views_of(rebuilder, name)
    if maker.kind == Map("sqrt"):
        return under_views(rebuilder, replace(maker, kind=Map("rsqrt")), views)
    exponent = _exponent(rebuilder, maker)
    if exponent is None or maker.dtype is DType.F64:
        return []
    negative = replace(maker, output=rebuilder.fresh(maker.output), kind=Map("negative"), inputs=(exponent,))
    sigmoid = replace(maker, kind=Map("sigmoid"), inputs=(negative.output,))
    return [negative, *under_views(rebuilder, sigmoid, views)]


def _exponent(rebuilder: Rebuilder, node: Node) -> str | None:
    """The u of 1 + exp(u)."""
    if node.kind == Map("add"):
        for this, other in (node.inputs, node.inputs[::-1]):
            if number_of(rebuilder, this) == 1 and rebuilder.nodes[other].kind == Map("exp"):
                return rebuilder.nodes[other].inputs[0]
    return None


def power(node: Node, rebuilder: Rebuilder) -> Change:
    base, natural = node.inputs[0], node.dtype.is_float and is_natural(rebuilder.nodes, node.inputs[0])
    match number_of(rebuilder, node.inputs[1]):
        case 1:
            return base
        case 2:
            return (replace(node, kind=Map("multiply"), inputs=(base, base)),)
        case 3:
            square = replace(node, output=rebuilder.fresh(node.output), kind=Map("multiply"), inputs=(base, base))
            return (square, replace(node, kind=Map("multiply"), inputs=(square.output, base)))
        case -1 if node.dtype.is_float:
            return (replace(node, kind=Map("reciprocal"), inputs=(base,)),)
        case 0.5 if natural:
            return (replace(node, kind=Map("sqrt"), inputs=(base,)),)
        case -0.5 if natural:
            return (replace(node, kind=Map("rsqrt"), inputs=(base,)),)
        case _:
            return (node,)
