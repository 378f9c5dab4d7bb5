"""Language `c`: C11 for gcc, clang and zig, against the ABI of noyau.h; the text compiles alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from noyau.errors import GraphError, UnsupportedError
from noyau.ir.algebra import Symbolic
from noyau.ir.dims import Dim, Op, product
from noyau.ir.loops import (
    Alloc,
    Axis,
    Buffer,
    Call,
    Expr,
    If,
    Index,
    Kernel,
    Launch,
    Let,
    Load,
    Loop,
    Prefetch,
    Require,
    Role,
    Space,
    Statement,
    Store,
    Sync,
    Var,
)
from noyau.ir.monoids import MONOIDS
from noyau.ir.walk import every_statement, rewrite_expression
from noyau.languages.c_expressions import Expressions, is_variable
from noyau.languages.c_interface import interface
from noyau.languages.c_joining import Printed, text_of
from noyau.languages.c_names import Scopes, wish_of
from noyau.languages.c_pairs import Open, in_pair, open_pairs
from noyau.languages.c_short import (
    begun_by,
    copied_around,
    inlined,
    is_copied_around,
    is_in_registers,
    is_only_stored,
    one_by_one,
    otherwise,
    starts_at_zero,
    steps_of,
)
from noyau.languages.c_tables import TYPES, WIDTH
from noyau.languages.spelling import closed, dim_text, opened

INDENT = "    "
ASSIGNED = {"add": "+", "multiply": "*", "bitwise_or": "|", "logical_or": "|", "logical_and": "&"}


def source(kernel: Kernel, comment: str = "", *, anonymous: bool = False) -> str:
    """The text of a kernel: a comment, the ABI, the scalar functions it uses, its launches, its table.

    `anonymous`: with numbers for names, to tell whether two kernels are one."""
    return together([kernel], comment, anonymous=anonymous)


def together(kernels: Sequence[Kernel], comment: str = "", *, anonymous: bool = False) -> str:
    """One text of several kernels, whose names differ. GraphError where a name cannot be that of a C function."""
    return text_of([printed(kernel, anonymous=anonymous) for kernel in kernels], comment)


def printed(kernel: Kernel, *, anonymous: bool = False) -> Printed:
    """A kernel's own part of a text. GraphError as in `together`, UnsupportedError for what C has no spelling of."""
    if not re.fullmatch(r"(?!noyau)[a-z]\w*", kernel.name, re.ASCII | re.IGNORECASE):
        raise GraphError(f"{kernel.name!r} cannot be the name of a C function: give letters, digits and _")
    printer = Printer(kernel, anonymous=anonymous)
    launches = [printer.launch(position, launch) for position, launch in enumerate(kernel.launches)]
    table = interface(kernel, printer.scopes, printer.expressions)
    called = printer.expressions
    return Printed((*launches, table), frozenset(called.functions), frozenset(called.integers))


class Printer:
    """One kernel being printed."""

    def __init__(self, kernel: Kernel, *, anonymous: bool = False) -> None:
        self.kernel = kernel
        self.scopes = Scopes(kernel, anonymous=anonymous)
        self.expressions = Expressions(kernel, self.scopes)
        self.rows: list[str] = []  # what the launch has taken from malloc
        self.parallel = False  # whether the launch has loops on threads

    def launch(self, position: int, launch: Launch) -> str:
        """The function that runs items [begin, end) of a launch."""
        self.scopes.used.clear()
        with self.scopes.block():
            memory = [s for s in every_statement(launch.body) if isinstance(s, Alloc) and s.space is Space.THREAD]
            taken = list(self.take(memory))
            inner = [*taken, *self.threads(launch)]
            inner += [f"{INDENT}{line}" for line in self.give_back()]
            head = [*self.pointers(), *self.sizes()]
        if any("noyau_write_around" in line for line in inner):
            inner.append(f"{INDENT}noyau_written_around();")
        lines = [*head, *([""] if head else []), *inner, f"{INDENT}return NOYAU_OK;"]
        signature = f"static int32_t {self.kernel.name}_{position}(const noyau_call *call, int64_t begin, int64_t end)"
        return "\n".join([signature, "{", *lines, "}"])

    def pointers(self) -> Iterator[str]:
        for at, buffer in enumerate(self.kernel.buffers):
            if ("value", buffer.name) in self.scopes.used:
                constant = "const " if buffer.role is Role.INPUT else ""
                name, kind = self.scopes.value(buffer.name), TYPES[buffer.dtype]
                told = ", strides ".join(self.listed(d) for d in (buffer.shape, buffer.strides) if d is not None)
                yield f"{INDENT}{constant}{kind} *restrict {name} = call->buffers[{at}]; /* {told} */"

    def sizes(self) -> Iterator[str]:
        for at, binding in enumerate(self.kernel.binding):
            if ("size", binding.size) in self.scopes.used:
                yield f"{INDENT}const int64_t {self.scopes.atom(binding.size)} = call->sizes[{at}];"

    def listed(self, dims: Iterable[Dim]) -> str:
        return f"[{', '.join(map(self.told, dims))}]"

    def told(self, dim: Dim) -> str:
        """A Dim in a comment."""
        return opened(dim_text(dim, self.scopes.peek, _tell))

    def said(self, condition: Expr) -> str:
        """A condition in a comment."""
        used = set(self.scopes.used)
        text = self.expressions.top(condition)
        self.scopes.used = used
        return text

    def take(self, memory: Sequence[Alloc]) -> Iterator[str]:
        """Memory of the thread, taken once a call."""
        self.rows = []
        for alloc in memory:
            self.expressions.memory[alloc.name] = alloc
            name, kind = self.scopes.bind(alloc.name), TYPES[alloc.dtype]
            count = closed(self.expressions.dim(product(alloc.shape)))
            yield f"{INDENT}{kind} *restrict {name} = malloc((size_t){count} * sizeof(*{name}) + 1);"
            self.rows.append(name)
        if self.rows:
            yield f"{INDENT}if ({' || '.join(f'!{name}' for name in self.rows)}) {{"
            yield from (f"{INDENT * 2}{line}" for line in self.give_back() if len(self.rows) > 1)
            yield f"{INDENT * 2}return NOYAU_OUT_OF_MEMORY;"
            yield f"{INDENT}}}"

    def give_back(self) -> list[str]:
        return [f"free({name});" for name in self.rows]

    def threads(self, launch: Launch) -> Iterator[str]:
        """What stands before the loops on threads, then these as one counted loop over the call's items."""
        body = launch.body
        loops, before, inner = list[Loop](), body[:-1], body[-1:]
        while len(inner) == 1 and isinstance(inner[0], Loop) and inner[0].axis is Axis.THREADS:
            loops.append(inner[0])
            inner = inner[0].body
        if not loops:
            before, inner = (), body
        yield from self.block(before, 1)
        self.parallel = bool(loops)
        extents = [self.told(loop.extent) for loop in loops]
        items = " x ".join(map(closed, extents) if len(extents) > 1 else extents)
        where = "" if launch.when is None else f" where {self.said(launch.when)}"
        yield f"{INDENT}/* {f'Items: {items}' if items else 'One item'}{where}. */"
        with self.scopes.block():
            yield from self.items(loops, inner)

    def items(self, loops: Sequence[Loop], body: tuple[Statement, ...]) -> Iterator[str]:
        outside = dict(self.expressions.extents)
        self.expressions.extents |= {loop.var: loop.extent for loop in loops}
        if len(loops) == 1:
            name = self.scopes.bind(loops[0].var, wish_of(loops[0].var))
            yield f"{INDENT}for (int64_t {name} = begin; {name} < end; ++{name}) {{"
        else:
            yield from self.first(loops)
            yield f"{INDENT}for (int64_t item = begin; item < end; ++item) {{"
        yield from self.block(body, 2)
        yield from self.next(loops)
        yield f"{INDENT}}}"
        self.expressions.extents = outside

    def first(self, loops: Sequence[Loop]) -> Iterator[str]:
        """The variables of several loops at the first item."""
        if not loops:
            return
        names = [self.scopes.bind(loop.var, wish_of(loop.var)) for loop in loops]
        yield f"{INDENT}if (begin >= end) {{"
        yield from (f"{INDENT * 2}{line}" for line in [*self.give_back(), "return NOYAU_OK;"])
        yield f"{INDENT}}}"
        yield f"{INDENT}int64_t left = begin;"
        for name, loop in reversed(list(zip(names[1:], loops[1:], strict=True))):
            extent = closed(self.expressions.dim(loop.extent))
            yield f"{INDENT}int64_t {name} = left % {extent};"
            yield f"{INDENT}left /= {opened(extent)};"
        yield f"{INDENT}int64_t {names[0]} = left;"

    def next(self, loops: Sequence[Loop]) -> Iterator[str]:
        """The variables of several loops moved to the next item."""
        if len(loops) < 2:
            return
        text = f"++{self.scopes.atom(loops[0].var)};"
        for loop in loops[1:]:
            name, extent = self.scopes.atom(loop.var), self.expressions.dim(loop.extent)
            text = f"if (++{name} == {extent}) {{ {name} = 0; {text} }}"
        yield f"{INDENT * 2}{text}"

    def block(self, statements: Iterable[Statement], depth: int) -> Iterator[str]:
        """Statements in a scope that is open already."""
        left = list(statements)
        while left:
            statement, *left = left
            if isinstance(statement, Let) and left and is_only_stored(statement, left):
                store, *left = left
                statement = inlined(statement, store)
            lines = self.statement(statement, last=not left)
            if left and isinstance(statement, Alloc) and starts_at_zero(statement, left[0]):
                lines, left = self.zeros(statement), left[1:]
            if left and (other := otherwise(statement, left[0])):
                lines, left = self.either(statement, other), left[1:]
            if isinstance(statement, Alloc) and (begun := begun_by([statement, *left])):
                *memory, first = [statement, *left][: begun + 1]
                lines, left = self.variables(memory, first), left[begun:]
            yield from (f"{INDENT * depth}{line}" for line in lines)

    def zeros(self, memory: Alloc) -> Iterator[str]:
        """Memory that is 0 at first, in its declaration: a loop over it would become a call of memset."""
        self.expressions.memory[memory.name] = memory
        count = self.expressions.dim(product(memory.shape))
        yield f"{TYPES[memory.dtype]} {self.scopes.bind(memory.name)}[{count}] = {{0}};"

    def variables(self, memory: Sequence[Statement], first: Statement) -> Iterator[str]:
        """Memory of one cell each, with what is in it first."""
        assert isinstance(first, Store)
        for alloc, value in zip(memory, first.values, strict=True):
            assert isinstance(alloc, Alloc)
            text = self.expressions.stored_as(alloc.dtype, value)
            self.expressions.memory[alloc.name] = alloc
            yield f"{TYPES[alloc.dtype]} {self.scopes.bind(alloc.name)} = {text};"

    def inner(self, statements: Iterable[Statement]) -> list[str]:
        with self.scopes.block():
            return list(self.block(statements, 1))

    def statement(self, statement: Statement, *, last: bool) -> Iterator[str]:
        """The lines of a statement, which may be the last of its block."""
        match statement:
            case Let():
                yield self.let(statement)
            case Store():
                yield from self.store(statement, last=last)
            case Loop():
                yield from self.loop(statement)
            case If(condition, body):
                yield f"if ({self.expressions.top(condition)}) {{"
                yield from self.inner(body)
                yield "}"
            case Alloc(name, dtype, shape, Space.REGISTER):
                self.expressions.memory[name] = statement
                count = "" if is_variable(statement) else f"[{self.expressions.dim(product(shape))}]"
                yield f"{TYPES[dtype]} {self.scopes.bind(name)}{count};"
            case Alloc(space=Space.THREAD):
                pass  # taken once a call, by `take`
            case Prefetch(buffer, index):
                yield f"NOYAU_PREFETCH(&{self.expressions.cell(buffer, index)});"
            case Require():
                yield from self.require(statement)
            case Alloc() | Sync():
                raise UnsupportedError(f"c has no {statement}; it has threads that never wait for each other")
            case _:
                assert_never(statement)

    def either(self, this: Statement, other: Sequence[Statement]) -> Iterator[str]:
        """One of two blocks."""
        assert isinstance(this, If)
        yield f"if ({self.expressions.top(this.condition)}) {{"
        yield from self.inner(this.body)
        yield "} else {"
        yield from self.inner(other)
        yield "}"

    def let(self, let: Let) -> str:
        """A value under the name that the model gives it; a cell of a buffer `x` is `x_i`."""
        text = self.expressions.top(let.value)
        wish = let.origin[0] if let.origin else let.name.removeprefix("#")
        if isinstance(let.value, Load) and isinstance(self.expressions.memory[let.value.buffer], Buffer):
            wish = f"{let.value.buffer}_i"
        if let.name.startswith("#"):
            return self.index(let, wish, text)
        return f"const {TYPES[let.value.dtype]} {self.scopes.bind(let.name, wish)} = {text};"

    def index(self, let: Let, wish: str, text: str) -> str:
        """An index or a length that has a name."""
        if isinstance(let.value, Index) and self.expressions.is_natural(let.value.dim):
            self.expressions.required[let.name] = let.value.dim + 1
        name = self.scopes.bind(let.name, wish_of(let.name) or wish)
        return f"const int64_t {name} = {text};"

    def require(self, require: Require) -> Iterator[str]:
        at, extent = self.expressions.dim(require.index), self.expressions.dim(require.extent)
        back = " ".join([*self.give_back(), "return NOYAU_INDEX_OUT_OF_BOUNDS;"])
        yield f"if ({at} < 0 || {at} >= {extent}) {f'{{ {back} }}' if self.rows else back}"
        if require.index == Dim.of(name := str(require.index)):
            self.expressions.required[name] = require.extent

    def loop(self, loop: Loop) -> Iterator[str]:
        if loop.axis is Axis.THREADS:
            raise UnsupportedError("c runs THREADS loops outermost only, each alone in the other")
        if is_copied_around(loop):
            yield copied_around(loop, self.expressions)
            return
        extent, outside = self.expressions.dim(loop.extent), dict(self.expressions.extents)
        self.expressions.extents[loop.var] = loop.extent
        with self.scopes.block():
            name = self.scopes.bind(loop.var, wish_of(loop.var))
            body = [*open_pairs(loop, self.expressions), *self.inner(loop.body)]
        self.expressions.extents, self.expressions.pairs = outside, Open()
        if loop.axis is Axis.LANES and not is_in_registers(loop, self.expressions.memory):
            yield "NOYAU_LANES"
        head = f"for (int64_t {name} = 0; {name} < {extent}; ++{name})"
        if len(body) == 1 and len(head) + len(body[0]) < WIDTH and body[0].endswith(";"):
            yield f"{head} {body[0].lstrip()}"
        else:
            yield f"{head} {{"
            yield from body
            yield "}"

    def store(self, store: Store, *, last: bool) -> Iterator[str]:
        if (line := in_pair(store, self.expressions)) is not None:
            yield line
            return
        places = [self.expressions.cell(name, store.index) for name in store.buffers]
        dtypes = [self.expressions.memory[name].dtype.compute for name in store.buffers]
        old = tuple(Load(name, store.index, dtype) for name, dtype in zip(store.buffers, dtypes, strict=True))
        if store.merge and self.parallel and any(isinstance(self.expressions.memory[n], Buffer) for n in store.buffers):
            raise UnsupportedError(f"c has no merge of threads into {store.buffers[0]}; privatise gives each its own")
        values = MONOIDS[store.merge].merge(Symbolic(), old, store.values) if store.merge else store.values
        if one_by_one(store.buffers, values):
            for place, name, cell, value in zip(places, store.buffers, old, values, strict=True):
                yield self.assigned(place, name, cell, value)
        elif last:
            yield from self.merged(store.buffers, places, values)
        else:
            with self.scopes.block():
                yield "{"
                yield from (f"{INDENT}{line}" for line in self.merged(store.buffers, places, values))
                yield "}"

    def assigned(self, place: str, name: str, old: Load, value: Expr) -> str:
        dtype = self.expressions.memory[name].dtype  # of half a float's width it is rounded apart
        signs = ASSIGNED if dtype is dtype.compute else {}
        match value:
            case Call(function, (left, right), _) if left == old and function in signs:
                return f"{place} {signs[function]}= {self.expressions.top(right)};"
            case _:
                return f"{place} = {self.expressions.stored(name, value)};"

    def merged(self, buffers: Sequence[str], places: Sequence[str], values: Sequence[Expr]) -> Iterator[str]:
        """States of several values: what is used twice has a name, and all are computed before one changes."""
        names: dict[Expr, Expr] = {}
        for number, call in enumerate(steps_of(values)):
            inner = rewrite_expression(call, lambda expr: names.get(expr, expr))
            text = self.expressions.top(inner)
            names[inner] = Var(f"part {number}", call.dtype)
            yield f"const {TYPES[call.dtype]} {self.scopes.bind(f'part {number}')} = {text};"
        finals = []
        for buffer, value in zip(buffers, values, strict=True):
            text = self.expressions.stored(buffer, rewrite_expression(value, lambda expr: names.get(expr, expr)))
            finals.append(self.scopes.bind(f"next {buffer}"))
            yield f"const {TYPES[self.expressions.memory[buffer].dtype]} {finals[-1]} = {text};"
        yield from (f"{place} = {final};" for place, final in zip(places, finals, strict=True))


def _tell(op: Op, left: str, right: str) -> str:
    signs = {"floordiv": "/", "mod": "%"}
    return f"({closed(left)} {signs[op.kind]} {closed(right)})" if op.kind in signs else f"{op.kind}({left}, {right})"
