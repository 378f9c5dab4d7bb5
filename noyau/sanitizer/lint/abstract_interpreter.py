"""A kernel's text walked over with the ranges of its whole numbers and the widths of its floats: nothing is run, and
what is not known is None, of which nothing is said."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from noyau.sanitizer.lint.values import Float, Loop, Pointer, Span, Sum, Touch, Value, cell_of, combined, either, joined

Array = np.ndarray


class Dialect(Protocol):
    """What words of a language mean. `literal_bits`: of a float that is written; `divides`: an integer quotient."""

    literal_bits: int

    def width(self, left: Span, right: Span) -> int:
        """Bits of what an operation makes of two whole numbers."""
        ...

    def word(self, name: str, walk: Walk) -> Value:
        """What a dotted name stands for."""
        ...

    def call(self, name: str, node: ast.Call, walk: Walk) -> Value:
        """What a call gives, by the dotted name of its function."""
        ...


class Walk:
    """A walk over one function. `names`: what its parameters are; `touches`, `sums`: what was met."""

    def __init__(self, dialect: Dialect, names: Mapping[str, Value]) -> None:
        self.dialect = dialect
        self.names: dict[str, Value] = dict(names)
        self.touches: list[Touch] = []
        self.sums: list[Sum] = []
        self.loops: list[Loop] = []
        self.depths: dict[str, int] = dict.fromkeys(names, 0)  # of loops, where each name was given a value
        self.fewer = 0  # guards around, by which only some threads go on

    # Statements.

    def walk(self, body: Sequence[ast.stmt]) -> None:
        for node in body:
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[target], value=value):
                self.assign(target, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                self.bind(name, self.value(value))
            case ast.AugAssign(target=target, op=op, value=value):
                self.updated(target, op, value, node.lineno)
            case ast.For(target=ast.Name(id=name), iter=iterated, body=body):
                self.loop(name, iterated, body)
            case ast.While(test=test, body=body):
                self.repeated(test, body)
            case ast.If(test=test, body=body, orelse=orelse):
                self.branch(test, body, orelse)
            case ast.Expr(value=value):
                self.value(value)
            case ast.With(body=body):
                self.walk(body)
            case _:
                return

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name) and isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            for own, other in ((value.left, value.right), (value.right, value.left)):
                if isinstance(own, ast.Name) and own.id == target.id:
                    self.updated(target, value.op, other, value.lineno)
                    return
        made = self.value(value)
        self.given(target, made)

    def given(self, target: ast.expr, made: Value) -> None:
        match target:
            case ast.Name(id=name):
                self.bind(name, made)
            case ast.Tuple(elts=elts):
                parts = made if isinstance(made, tuple) and len(made) == len(elts) else (None,) * len(elts)
                for each, part in zip(elts, parts, strict=True):
                    self.given(each, part)
            case ast.Subscript():
                self.value(target)

    def bind(self, name: str, value: Value) -> None:
        self.names[name] = value
        self.depths[name] = len(self.loops)
        for loop in self.loops:
            loop.names.add(name)

    def updated(self, target: ast.expr, op: ast.operator, value: ast.expr, line: int) -> None:
        """`target op= value`: a number that grows round by round, or a sum of floats."""
        added = self.value(value)
        if isinstance(target, ast.Name):
            before = self.names.get(target.id)
            rounds = self.rounds(self.depths.get(target.id, 0))
            if isinstance(before, Float) and isinstance(op, ast.Add):
                self.summed(target.id, before, added, rounds, line)
            else:
                self.names[target.id] = self.grown(before, op, added, rounds, line, ast.unparse(target))
        elif isinstance(target, ast.Subscript):
            cell = self.value(target)
            if isinstance(op, ast.Add) and isinstance(cell, Float) and not self.fewer:
                used = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
                rounds = int(np.prod([loop.trips for loop in self.loops if not loop.names & used], dtype=object))
                self.summed(ast.unparse(target), cell, added, rounds, line)

    def grown(self, before: Value, op: ast.operator, added: Value, rounds: int, line: int, name: str) -> Value:
        """What a name is over all rounds of the loops in which it is updated."""
        offset = before.offset if isinstance(before, Pointer) else before
        if not isinstance(offset, Span) or not isinstance(added, Span) or not isinstance(op, ast.Add | ast.Sub):
            return None
        step = combined("Mult", added, Span(0, rounds, added.bits), added.bits)
        kind = type(op).__name__
        bits = self.dialect.width(offset, added)
        made = None if step is None else combined(kind, offset, step, bits)
        if isinstance(before, Pointer):
            return None if made is None else Pointer(before.array, made.widened(64))
        return None if made is None else made.noting(line, f"{name} {'+' if kind == 'Add' else '-'}= ...")

    def summed(self, name: str, before: Float, added: Value, rounds: int, line: int) -> None:
        bits = max(before.bits, added.bits) if isinstance(added, Float) else before.bits
        if before.bits == 32 and bits == 32 and added is not None:
            self.sums.append(Sum(name, line, rounds))

    def rounds(self, depth: int) -> int:
        """How often the innermost loops run, from a depth on; rounds that are dealt to threads count as few."""
        return int(np.prod([self.trips(loop) for loop in self.loops[depth:]], dtype=object))

    @staticmethod
    def trips(loop: Loop) -> int:
        return -(-loop.trips // 256) if loop.is_shared else loop.trips

    # Loops and branches.

    def loop(self, name: str, iterated: ast.expr, body: Sequence[ast.stmt]) -> None:
        made = self.value(iterated)
        spans = [each for each in made if isinstance(each, Span)] if isinstance(made, tuple) else []
        is_shared = isinstance(iterated, ast.Call) and "prange" in ast.unparse(iterated.func)
        if len(spans) != 3:
            with self.inside(Loop(1)):
                self.forget(body)
                self.bind(name, None)
                self.walk(body)
            return
        start, end, step = spans  # each is one
        if step.low <= 0:
            trips, taken = max(start.high - end.low, 0) if step.is_one else 1, joined(start, end)
        else:
            far = max(end.low - start.low, end.high - start.high)  # both ends of a block move together
            trips = max(-(-far // step.low), 0)
            taken = Span(start.low, max(end.high - 1, start.low), max(start.bits, end.bits))
        with self.inside(Loop(trips, {name}, is_shared)):
            self.bind(name, taken)
            self.walk(body if trips else [])

    def repeated(self, test: ast.expr, body: Sequence[ast.stmt]) -> None:
        """A while loop: names that it assigns are not known in it, but for what the test says of them."""
        before = dict(self.names)
        with self.inside(Loop(1)):
            self.forget(body)
            match test:
                case ast.Compare(left=ast.Name(id=name), ops=[ast.Lt() | ast.LtE()], comparators=[end]):
                    start, limit = before.get(name), self.value(end)
                    if isinstance(start, Span) and isinstance(limit, Span):
                        self.bind(name, Span(start.low, max(limit.high, start.low), start.bits))
            with self.narrowed(test):
                self.walk(body)

    def forget(self, body: Sequence[ast.stmt]) -> None:
        """Names that statements assign hold what is not known."""
        for node in (each for part in body for each in ast.walk(part)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.names[node.id] = None

    def branch(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        before = dict(self.names)
        compared = (node for node in ast.walk(test) if isinstance(node, ast.Compare))
        is_rare = any(isinstance(each, ast.Eq) for node in compared for each in node.ops)
        self.fewer += is_rare
        with self.narrowed(test):
            self.walk(body)
        self.fewer -= is_rare
        after, self.names = self.names, before
        self.walk(orelse)
        ended = bool(body) and isinstance(body[-1], ast.Return | ast.Continue | ast.Break)
        for name in {} if ended else after.keys() | self.names.keys():
            one, other = after.get(name), self.names.get(name)
            if one is not other:
                self.names[name] = either(one, other)

    @contextmanager
    def narrowed(self, test: ast.expr) -> Iterator[None]:
        """Names as a condition has them, where it holds."""
        self.value(test)
        changed: dict[str, tuple[Value, Value]] = {}
        for name, made in self.limits(test):
            changed[name] = self.names.get(name), made
            self.names[name] = made
        yield
        for name, (before, narrow) in changed.items():
            if self.names.get(name) is narrow:
                self.names[name] = before

    def limits(self, test: ast.expr) -> Iterator[tuple[str, Span]]:
        match test:
            case ast.BoolOp(op=ast.And(), values=values):
                for each in values:
                    yield from self.limits(each)
            case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[end]):
                held, limit = self.names.get(name), self.value(end)
                if isinstance(held, Span) and isinstance(limit, Span):
                    match op:
                        case ast.Lt():
                            yield name, held.below(limit.high - 1)
                        case ast.LtE():
                            yield name, held.below(limit.high)
                        case ast.Gt() | ast.GtE():
                            yield name, held.above(limit.low)

    @contextmanager
    def inside(self, loop: Loop) -> Iterator[None]:
        self.loops.append(loop)
        try:
            yield
        finally:
            self.loops.pop()

    # Expressions.

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=bool()):
                return None
            case ast.Constant(value=int() as number):
                return Span.of(number, 0)
            case ast.Constant(value=float()):
                return Float(self.dialect.literal_bits)
            case ast.Name(id=name):
                return self.names[name] if name in self.names else self.dialect.word(name, self)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript(value=value, slice=index):
                return self.picked(self.value(value), index, node.lineno)
            case ast.BinOp(left=left, op=op, right=right):
                return self.combined(self.value(left), op, self.value(right), node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.negated(self.value(operand))
            case ast.Call():
                return self.called(node)
            case ast.Tuple(elts=elts):
                return tuple(self.value(each) for each in elts)
            case ast.IfExp(body=body, orelse=orelse):
                return either(self.value(body), self.value(orelse))
            case _:
                for each in ast.iter_child_nodes(node):
                    if isinstance(each, ast.expr):
                        self.value(each)
                return None

    def attribute(self, node: ast.Attribute) -> Value:
        held = self.value(node.value) if isinstance(node.value, ast.Name) and node.value.id in self.names else None
        if isinstance(held, Array):
            match node.attr:
                case "shape":
                    return tuple(Span.of(extent) for extent in held.shape)
                case "size":
                    return Span.of(held.size)
        return self.dialect.word(ast.unparse(node), self)

    def picked(self, held: Value, index: ast.expr, line: int) -> Value:
        at = self.value(index)
        if isinstance(held, tuple) and isinstance(at, Span) and at.is_one and -len(held) <= at.low < len(held):
            part: Value = held[at.low]
            return part
        if isinstance(held, Array):
            for each in at if isinstance(at, tuple) else (at,):
                self.touch(held, each, line)
            return cell_of(held)
        if isinstance(held, Pointer):
            self.touch(held.array, at, line)
            self.touch(held.array, held.offset, line)
            return cell_of(held.array)
        return None

    def touch(self, array: Array, offset: Value, line: int) -> None:
        """An access; one whose offset has overflowed on the way is kept."""
        if isinstance(offset, Span) and offset.lost is not None:
            self.touches.append(Touch(array, offset.lost, line))

    def combined(self, left: Value, op: ast.operator, right: Value, node: ast.expr) -> Value:
        kind = type(op).__name__
        match left, right:
            case Span(), Span():
                made = combined(kind, left, right, self.dialect.width(left, right))
                return None if made is None else made.noting(node.lineno, ast.unparse(node))
            case Array(), Span():
                return self.moved(Pointer(left, Span.of(0)), kind, right)
            case Pointer(), Span():
                return self.moved(left, kind, right)
            case (Span(), Array()) | (Span(), Pointer()):
                return self.combined(right, op, left, node)
            case Float(), Float():
                return Float(max(left.bits, right.bits))
            case (Float(bits=bits), Span()) | (Span(), Float(bits=bits)):
                return Float(bits)
        return None

    @staticmethod
    def moved(pointer: Pointer, kind: str, by: Span) -> Value:
        made = combined(kind, pointer.offset, by, 64)
        return None if made is None else Pointer(pointer.array, made)

    @staticmethod
    def negated(value: Value) -> Value:
        return Span(-value.high, -value.low, value.bits, value.lost) if isinstance(value, Span) else value

    def called(self, node: ast.Call) -> Value:
        name = ast.unparse(node.func)
        if name in ("range", "prange", "numba.prange", "nb.prange", "tl.range", "tl.static_range"):
            given = [self.value(each) for each in node.args]
            full = [Span.of(0, 0), *given, Span.of(1, 0)] if len(given) == 1 else [*given, Span.of(1, 0)][:3]
            return tuple(full)
        if name in ("min", "max") and len(node.args) == 2:
            one, other = (self.value(each) for each in node.args)
            if isinstance(one, Span) and isinstance(other, Span):
                pick = min if name == "min" else max
                bits = self.dialect.width(one, other)
                return Span(pick(one.low, other.low), pick(one.high, other.high), bits, one.lost or other.lost)
            return either(one, other)
        return self.dialect.call(name, node, self)
