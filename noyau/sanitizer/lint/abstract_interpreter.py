"""Abstract interpretation of a kernel's text over the intervals of its integers and the widths of its floats.

Nothing is run. An unknown value is None, and nothing is reported about it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from noyau.sanitizer.lint.values import Float, Interval, Pointer, Sum, Touch, Value, cell_of, combine, merge, union

Array = np.ndarray


class Dialect(Protocol):
    """The semantics of a language's words; `literal_bits` is the width of a float literal."""

    literal_bits: int

    def width(self, left: Interval, right: Interval) -> int:
        """Return the width of the result of an operation on two integers."""

    def word(self, name: str, walk: Walk) -> Value:
        """Return the value of a dotted name."""

    def call(self, name: str, node: ast.Call, walk: Walk) -> Value:
        """Return the value of a call, by the dotted name of its function."""


@dataclass(slots=True)
class LoopContext:
    """A loop around the current statement: its trip count, and the names that vary between iterations."""

    trips: int
    names: set[str] = field(default_factory=set)
    is_shared: bool = False  # its iterations are distributed over threads


class Walk:
    """A walk over one function; `names` holds the values of variables, `touches` and `sums` the results."""

    def __init__(self, dialect: Dialect, names: Mapping[str, Value]) -> None:
        self.dialect = dialect
        self.names: dict[str, Value] = dict(names)
        self.touches: list[Touch] = []
        self.sums: list[Sum] = []
        self.loops: list[LoopContext] = []
        self.depths: dict[str, int] = dict.fromkeys(names, 0)  # loop depth at each name's last assignment
        self.fewer = 0  # enclosing `==` guards, which only some threads pass

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
                self.update(target, op, value, node.lineno)
            case ast.For(target=ast.Name(id=name), iter=iterated, body=body):
                self.loop(name, iterated, body)
            case ast.While(test=test, body=body):
                self.repeat(test, body)
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
                    self.update(target, value.op, other, value.lineno)
                    return
        self.store(target, self.value(value))

    def store(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name(id=name):
                self.bind(name, value)
            case ast.Tuple(elts=elts):
                parts = value if isinstance(value, tuple) and len(value) == len(elts) else (None,) * len(elts)
                for each, part in zip(elts, parts, strict=True):
                    self.store(each, part)
            case ast.Subscript():
                self.value(target)

    def bind(self, name: str, value: Value) -> None:
        self.names[name] = value
        self.depths[name] = len(self.loops)
        for loop in self.loops:
            loop.names.add(name)

    def update(self, target: ast.expr, op: ast.operator, value: ast.expr, line: int) -> None:
        """Evaluate `target op= value`: an integer that grows in each iteration, or a float sum."""
        added = self.value(value)
        if isinstance(target, ast.Name):
            before = self.names.get(target.id)
            rounds = self.rounds(self.depths.get(target.id, 0))
            if isinstance(before, Float) and isinstance(op, ast.Add):
                self.add_sum(target.id, before, added, rounds, line)
            else:
                self.names[target.id] = self.grow(before, op, added, rounds, line, ast.unparse(target))
        elif isinstance(target, ast.Subscript):
            cell = self.value(target)
            if isinstance(op, ast.Add) and isinstance(cell, Float) and not self.fewer:
                names = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
                rounds = int(np.prod([loop.trips for loop in self.loops if not loop.names & names], dtype=object))
                self.add_sum(ast.unparse(target), cell, added, rounds, line)

    def grow(self, before: Value, op: ast.operator, added: Value, rounds: int, line: int, name: str) -> Value:
        """Return the value of a name after all iterations of the loops that update it."""
        offset = before.offset if isinstance(before, Pointer) else before
        if not isinstance(offset, Interval) or not isinstance(added, Interval) or not isinstance(op, ast.Add | ast.Sub):
            return None
        step, kind = combine("Mult", added, Interval(0, rounds, added.bits), added.bits), type(op).__name__
        total = None if step is None else combine(kind, offset, step, self.dialect.width(offset, added))
        if total is not None and isinstance(before, Pointer):
            return Pointer(before.array, total.with_bits(64))
        return None if total is None else total.with_overflow(line, f"{name} {'+' if kind == 'Add' else '-'}= ...")

    def add_sum(self, name: str, before: Float, added: Value, rounds: int, line: int) -> None:
        bits = max(before.bits, added.bits) if isinstance(added, Float) else before.bits
        if before.bits == 32 and bits == 32 and added is not None:
            self.sums.append(Sum(name, line, rounds))

    def rounds(self, depth: int) -> int:
        """Return the trip count of the loops below a depth; iterations that threads share count as few."""
        trips = [-(-loop.trips // 256) if loop.is_shared else loop.trips for loop in self.loops[depth:]]
        return int(np.prod(trips, dtype=object))

    # Loops and branches.

    def loop(self, name: str, iterated: ast.expr, body: Sequence[ast.stmt]) -> None:
        bounds = self.value(iterated)
        spans = [each for each in bounds if isinstance(each, Interval)] if isinstance(bounds, tuple) else []
        is_shared = isinstance(iterated, ast.Call) and "prange" in ast.unparse(iterated.func)
        if len(spans) != 3:
            with self.inside(LoopContext(1)):
                self.forget(body)
                self.bind(name, None)
                self.walk(body)
            return
        start, end, step = spans  # each an interval
        if step.low <= 0:
            trips, values = max(start.high - end.low, 0) if step.is_one else 1, union(start, end)
        else:
            far = max(end.low - start.low, end.high - start.high)  # both ends of a block move together
            trips = max(-(-far // step.low), 0)
            values = Interval(start.low, max(end.high - 1, start.low), max(start.bits, end.bits))
        with self.inside(LoopContext(trips, {name}, is_shared)):
            self.bind(name, values)
            self.walk(body if trips else [])

    def repeat(self, test: ast.expr, body: Sequence[ast.stmt]) -> None:
        """Walk a while loop: names that it assigns are unknown in its body, except as its test limits them."""
        before = dict(self.names)
        with self.inside(LoopContext(1)):
            self.forget(body)
            match test:
                case ast.Compare(left=ast.Name(id=name), ops=[ast.Lt() | ast.LtE()], comparators=[end]):
                    start, limit = before.get(name), self.value(end)
                    if isinstance(start, Interval) and isinstance(limit, Interval):
                        self.bind(name, Interval(start.low, max(limit.high, start.low), start.bits))
            with self.narrow(test):
                self.walk(body)

    def forget(self, body: Sequence[ast.stmt]) -> None:
        """Mark the names that statements assign as unknown."""
        for node in (each for part in body for each in ast.walk(part)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.names[node.id] = None

    def branch(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        before = dict(self.names)
        compared = (node for node in ast.walk(test) if isinstance(node, ast.Compare))
        is_rare = any(isinstance(each, ast.Eq) for node in compared for each in node.ops)
        self.fewer += is_rare
        with self.narrow(test):
            self.walk(body)
        self.fewer -= is_rare
        after, self.names = self.names, before
        self.walk(orelse)
        ended = bool(body) and isinstance(body[-1], ast.Return | ast.Continue | ast.Break)
        for name in {} if ended else after.keys() | self.names.keys():
            one, other = after.get(name), self.names.get(name)
            if one is not other:
                self.names[name] = merge(one, other)

    @contextmanager
    def narrow(self, test: ast.expr) -> Iterator[None]:
        """Narrow names by a condition within the context."""
        self.value(test)
        changed: dict[str, tuple[Value, Value]] = {}
        for name, interval in self.limits(test):
            changed[name] = self.names.get(name), interval
            self.names[name] = interval
        yield
        for name, (before, narrow) in changed.items():
            if self.names.get(name) is narrow:
                self.names[name] = before

    def limits(self, test: ast.expr) -> Iterator[tuple[str, Interval]]:
        match test:
            case ast.BoolOp(op=ast.And(), values=values):
                for each in values:
                    yield from self.limits(each)
            case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[end]):
                value, limit = self.names.get(name), self.value(end)
                if isinstance(value, Interval) and isinstance(limit, Interval):
                    match op:
                        case ast.Lt():
                            yield name, value.below(limit.high - 1)
                        case ast.LtE():
                            yield name, value.below(limit.high)
                        case ast.Gt() | ast.GtE():
                            yield name, value.above(limit.low)

    @contextmanager
    def inside(self, loop: LoopContext) -> Iterator[None]:
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
                return Interval.of(number, 0)
            case ast.Constant(value=float()):
                return Float(self.dialect.literal_bits)
            case ast.Name(id=name):
                return self.names[name] if name in self.names else self.dialect.word(name, self)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript(value=value, slice=index):
                return self.element(self.value(value), index, node.lineno)
            case ast.BinOp(left=left, op=op, right=right):
                return self.combine(self.value(left), op, self.value(right), node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.value(operand)
                return replace(inner, low=-inner.high, high=-inner.low) if isinstance(inner, Interval) else inner
            case ast.Call():
                return self.call(node)
            case ast.Tuple(elts=elts):
                return tuple(self.value(each) for each in elts)
            case ast.IfExp(body=body, orelse=orelse):
                return merge(self.value(body), self.value(orelse))
            case _:
                for each in ast.iter_child_nodes(node):
                    if isinstance(each, ast.expr):
                        self.value(each)
                return None

    def attribute(self, node: ast.Attribute) -> Value:
        array = self.value(node.value) if isinstance(node.value, ast.Name) and node.value.id in self.names else None
        if isinstance(array, Array) and node.attr == "shape":
            return tuple(Interval.of(extent) for extent in array.shape)
        if isinstance(array, Array) and node.attr == "size":
            return Interval.of(array.size)
        return self.dialect.word(ast.unparse(node), self)

    def element(self, value: Value, index: ast.expr, line: int) -> Value:
        at = self.value(index)
        if isinstance(value, tuple) and isinstance(at, Interval) and at.is_one and -len(value) <= at.low < len(value):
            part: Value = value[at.low]
            return part
        if isinstance(value, Array):
            for each in at if isinstance(at, tuple) else (at,):
                self.touch(value, each, line)
            return cell_of(value)
        if isinstance(value, Pointer):
            self.touch(value.array, at, line)
            self.touch(value.array, value.offset, line)
            return cell_of(value.array)
        return None

    def touch(self, array: Array, offset: Value, line: int) -> None:
        """Record an access whose offset overflowed on the way."""
        if isinstance(offset, Interval) and offset.overflow is not None:
            self.touches.append(Touch(array, offset.overflow, line))

    def combine(self, left: Value, op: ast.operator, right: Value, node: ast.expr) -> Value:
        kind = type(op).__name__
        match left, right:
            case Interval(), Interval():
                result = combine(kind, left, right, self.dialect.width(left, right))
                return None if result is None else result.with_overflow(node.lineno, ast.unparse(node))
            case Array(), Interval():
                return self.offset_pointer(Pointer(left, Interval.of(0)), kind, right)
            case Pointer(), Interval():
                return self.offset_pointer(left, kind, right)
            case Interval(), Array() | Pointer():
                return self.combine(right, op, left, node)
            case Float(), Float():
                return Float(max(left.bits, right.bits))
            case (Float(bits=bits), Interval()) | (Interval(), Float(bits=bits)):
                return Float(bits)
        return None

    @staticmethod
    def offset_pointer(pointer: Pointer, kind: str, by: Interval) -> Value:
        offset = combine(kind, pointer.offset, by, 64)
        return None if offset is None else Pointer(pointer.array, offset)

    def call(self, node: ast.Call) -> Value:
        name = ast.unparse(node.func)
        if name in ("range", "prange", "numba.prange", "nb.prange", "tl.range", "tl.static_range"):
            ends = [self.value(each) for each in node.args]
            start = [Interval.of(0, 0)] if len(ends) == 1 else []
            return tuple([*start, *ends, Interval.of(1, 0)][:3])
        if name in ("min", "max") and len(node.args) == 2:
            one, other = (self.value(each) for each in node.args)
            if isinstance(one, Interval) and isinstance(other, Interval):
                pick, bits = min if name == "min" else max, self.dialect.width(one, other)
                lost = one.overflow or other.overflow
                return Interval(pick(one.low, other.low), pick(one.high, other.high), bits, lost)
            return merge(one, other)
        return self.dialect.call(name, node, self)
