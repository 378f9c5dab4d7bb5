"""The rules of the loop IR. Names, dtypes and indices are checked while a kernel is translated to plain Python, the
text that `run` executes. Tests run the verifier after every schedule function.

Every name in the text is generated (`v0`, `v1`...), so that no name of a model reaches it."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, assert_never

from noyau.dtypes import DType
from noyau.errors import GraphError
from noyau.ir import loops as ir
from noyau.ir.dims import Atom, Dim, Shape
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS, dtype_of
from noyau.ir.walk import all_dims, dims_in, every_statement, folds_in, loops_of, memory_of, targets_of, tiles_of


def check(kernel: ir.Kernel) -> ir.Kernel:
    """Return the kernel itself; GraphError says which rule it breaks.

    `Translator` checks names, dtypes and indices. Beyond that: no name has two meanings at one place; loops on threads
    are outermost, each last in its block; merged values are states of the monoid; every output is stored."""
    if reason := next(_faults(kernel), None):
        raise GraphError(f"{kernel.name}: {reason}")
    return kernel


def _faults(kernel: ir.Kernel) -> Iterator[str]:
    for launch in kernel.launches:
        yield from _tiles_faults(launch)
    Translator(kernel).text()
    yield from _buffer_faults(kernel)
    for launch in kernel.launches:
        yield from _threads_faults(launch.body)
        yield from _names_faults((), launch.body, {buffer.name for buffer in kernel.buffers})
        for statement in every_statement(launch.body):
            yield from _store_faults(statement)


def _buffer_faults(kernel: ir.Kernel) -> Iterator[str]:
    names = [buffer.name for buffer in kernel.buffers]
    yield from (f"two buffers are called {name}" for name in names if names.count(name) > 1)
    for buffer in kernel.buffers:
        yield from _strides_faults(kernel, buffer)
    roles = [list(ir.Role).index(buffer.role) for buffer in kernel.buffers]
    if roles != sorted(roles):
        yield "its buffers are not in the order inputs, outputs, scratch"
    stored = {name for launch in kernel.launches for name in targets_of(launch.body)}
    outputs = [buffer.name for buffer in kernel.of(ir.Role.OUTPUT)]
    yield from (f"nothing is stored in the output {name}" for name in outputs if name not in stored)


def _strides_faults(kernel: ir.Kernel, buffer: ir.Buffer) -> Iterator[str]:
    if buffer.strides is not None:
        if buffer.role is not ir.Role.INPUT:
            yield f"{buffer.name}, which is no input, has strides"
        if len(buffer.strides) != len(buffer.shape):
            yield f"{buffer.name} of rank {len(buffer.shape)} has {len(buffer.strides)} strides"
        bound = {binding.size for binding in kernel.binding}
        loose = sorted(name for dim in buffer.strides for name in dim.names - bound)
        yield from (f"the stride {name} of {buffer.name} is bound by no input" for name in loose)


def _tiles_faults(launch: ir.Launch) -> Iterator[str]:
    """Loops over tiles that the launch does not declare, and tiles with the same name."""
    names = [tile.name for tile in launch.tiles]
    yield from (f"two tiles of a launch are called {name}" for name in names if names.count(name) > 1)
    strange = (tile.name for tile in tiles_of(launch.body) if tile not in launch.tiles)
    yield from (f"its launch does not declare the tile {name}" for name in strange)


def _threads_faults(body: tuple[ir.Statement, ...], outermost: bool = True) -> Iterator[str]:
    """Loops on threads within another kind of loop, or with a statement after them."""
    for at, statement in enumerate(body):
        if isinstance(statement, ir.Loop) and statement.axis is ir.Axis.THREADS:
            if not outermost or at != len(body) - 1:
                yield f"the loop over {statement.var} on threads is not outermost, at the end of its block"
            if any(name.startswith("#") for name in statement.extent.names):
                yield f"how often {statement.var} runs on threads depends on another loop"
            yield from _threads_faults(statement.body)
        elif isinstance(statement, ir.Loop | ir.If):
            yield from _threads_faults(statement.body, outermost=False)
        for fold in folds_in((statement,)):
            yield from _threads_faults(fold.body, outermost=False)


def _names_faults(names: Iterable[str], body: Iterable[ir.Statement], outside: Collection[str]) -> Iterator[str]:
    """Names, bound for a body or in it, that are visible there already."""
    yield from (f"{name} is bound where it has a meaning already" for name in names if name in outside)
    visible = {*outside, *names}
    for statement in body:
        for fold in folds_in((statement,)):
            yield from _names_faults([variable for variable, _ in fold.loops], fold.body, visible)
        match statement:
            case ir.Let(name) | ir.Alloc(name):
                yield from _names_faults([name], (), visible)
                visible.add(name)
            case ir.Loop(var, _, _, inner):
                yield from _names_faults([var], inner, visible)
            case ir.If(_, inner):
                yield from _names_faults((), inner, visible)
            case ir.Zero() | ir.MergeLanes() | ir.StreamStore():
                yield from _names_faults((), loops_of(statement), visible)
            case ir.Store() | ir.Prefetch() | ir.Require():
                pass
            case _:
                assert_never(statement)


def _store_faults(statement: ir.Statement) -> Iterator[str]:
    """Values that are no state of the monoid that merges them."""
    if isinstance(statement, ir.Store) and statement.merge is not None:
        monoid, dtypes = MONOIDS.get(statement.merge), tuple(value.dtype for value in statement.values)
        if monoid is None:
            yield f"{statement.merge} is not in the table of monoids"
        elif dtypes[0].kind not in monoid.accepts or monoid.states(dtypes[0]) != dtypes:
            yield f"{', '.join(dtype.value for dtype in dtypes)} is no state of {statement.merge}"


class Translator:
    """Translation of one kernel to Python: its lines, the names in scope, the objects that the text refers to.

    The text defines `launches`, a list of functions, over `R`, the `KernelRun` of one run, and `K`, its objects."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel, self.lines, self.depth, self.count = kernel, list[str](), 0, 0
        self.objects: list[Any] = []
        self.values: dict[str, tuple[str, DType]] = {}  # Lets
        self.indices: dict[str, str] = {}  # sizes, loop variables, looked-up indices
        self.memories: dict[str, tuple[str, ir.Buffer | ir.Alloc, int]] = {}  # and open parallel loops
        self.loops: list[tuple[str, str]] = []  # the open parallel loops: race detector and index

    def text(self) -> str:
        for size in sorted(_sizes(self.kernel)):
            self.indices[size] = self.let(f"R.size({self.spell(size)})")
        for position, buffer in enumerate(self.kernel.buffers):
            self.memories[buffer.name] = (self.let(f"R.memories[{position}]"), buffer, 0)
        self.write("launches = []")
        for launch in self.kernel.launches:
            self.launch(launch)
        return "\n".join(self.lines) + "\n"

    def launch(self, launch: ir.Launch) -> None:
        name = self.fresh()
        with self.block(f"def {name}():"):
            self.body(launch.body)
        condition = "" if launch.when is None else f"if {self.condition(launch.when)}: "
        self.write(f"{condition}launches.append({name})")

    def write(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count - 1}"

    def let(self, text: str) -> str:
        name = self.fresh()
        self.write(f"{name} = {text}")
        return name

    def spell(self, value: Any) -> str:
        """The text that refers to an object of the kernel, an entry of `K`."""
        self.objects.append(value)
        return f"K[{len(self.objects) - 1}]"

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent lines under a head; names that they bind go out of scope after them."""
        outside = self.values, self.indices, self.memories
        self.values, self.indices, self.memories = dict(self.values), dict(self.indices), dict(self.memories)
        self.write(head)
        self.depth += 1
        self.write("pass")
        yield
        self.depth -= 1
        self.values, self.indices, self.memories = outside

    def fault(self, reason: str) -> GraphError:
        return GraphError(f"{self.kernel.name}: {reason}")

    # Statements.

    def body(self, statements: Iterable[ir.Statement]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, statement: ir.Statement) -> None:
        match statement:
            case ir.Let(name, value, _):
                self.bind(name, value)
            case ir.Store():
                self.store(statement)
            case ir.Loop():
                self.loop(statement)
            case ir.If(condition, body):
                with self.block(f"if {self.condition(condition)}:"):
                    self.body(body)
            case ir.Alloc(name, _, shape, space):
                if space in (ir.Space.REGISTER, ir.Space.BLOCK) and any(dim.constant is None for dim in shape):
                    place = "in registers" if space is ir.Space.REGISTER else "with the lanes of a block"
                    raise self.fault(f"{name} lies {place}, but its size is not known now")
                text = self.let(f"R.memory({self.spell(statement)}, [{self.dims(shape)}])")
                self.memories[name] = text, statement, len(self.loops)
            case ir.Prefetch(buffer, index):
                self.place(buffer, index)
            case ir.Zero() | ir.MergeLanes() | ir.StreamStore():
                self.body(loops_of(statement))
            case ir.Require(index, extent):
                self.write(f"R.require({self.dim(index)}, {self.dim(extent)})")
            case _:
                assert_never(statement)

    def bind(self, name: str, value: ir.Expr) -> None:
        text = self.let(self.expression(value))
        if name.startswith("#"):
            if value.dtype is not DType.I64:
                raise self.fault(f"the index {name} is {value.dtype.value}, not i64")
            self.indices[name] = self.let(f"int({text})")
        self.values[name] = text, value.dtype

    def store(self, store: ir.Store) -> None:
        buffers, index, values, merge = store.buffers, store.index, store.values, store.merge
        count = len(MONOIDS[merge].init(DType.F32)) if merge else len(buffers)
        if not len(buffers) == len(values) == count:
            raise self.fault(f"a Store of {len(values)} values into {len(buffers)} buffers, of {count}")
        for buffer, value in zip(buffers, values, strict=True):
            target = self.memory(buffer)[1]
            if isinstance(target, ir.Buffer) and target.role is ir.Role.INPUT:
                raise self.fault(f"a Store into the input {buffer}")
            if target.dtype.compute is not value.dtype:
                raise self.fault(f"a Store of {value.dtype.value} into {buffer}, which is {target.dtype.value}")
        places = [self.place(buffer, index) for buffer in buffers]
        texts = [self.let(self.expression(value)) for value in values]
        for buffer, place in zip(buffers, places, strict=True):
            for race_detector, who in self.loops[self.memory(buffer)[2] :]:  # loops opened after the allocation
                access = f"merges({who}, {store.is_atomic}" if merge else f"stores({who}"
                self.write(f"{race_detector}.{access}, {', '.join(place)})")
        if merge:
            old = _tuple(f"{memory}.load({at})" for memory, at in places)
            state = self.let(f"{self.spell(MONOIDS[merge])}.merge(R, {old}, {_tuple(texts)})")
            texts = [f"{state}[{part}]" for part in range(len(places))]
        for (memory, at), text in zip(places, texts, strict=True):
            self.write(f"{memory}.store({text}, {at})")

    def loop(self, loop: ir.Loop) -> None:
        var, axis, body, count, name = loop.var, loop.axis, loop.body, self.dim(loop.rounds), self.fresh()
        in_order = axis in (ir.Axis.SERIAL, ir.Axis.VECTOR)
        if loop.step != 1 or loop.start != Dim.of(0):
            if not in_order:
                raise self.fault(f"the loop over {var} has steps, but no order")
            count = f"{self.dim(loop.start)}, {count}, {loop.step}"
        if not in_order:
            self.loops.append((self.let(f"R.race_detector({axis is ir.Axis.LANES})"), name))
        with self.block(f"for {name} in {'range' if in_order else 'R.shuffle'}({count}):"):
            self.indices[var] = name
            if axis is ir.Axis.THREADS:
                self.own_memories(body)
            self.body(body)
        if not in_order:
            self.loops.pop()

    def own_memories(self, body: tuple[ir.Statement, ...]) -> None:
        """Give each thread a copy, unset at first, of thread memory that is allocated outside a THREADS loop."""
        own = memory_of(body)
        for name, (text, memory, _) in list(self.memories.items()):
            if name in own and isinstance(memory, ir.Alloc):
                self.memories[name] = self.let(f"{text}.unset()"), memory, len(self.loops)

    # Expressions.

    def expression(self, expr: ir.Expr) -> str:
        match expr:
            case ir.Const(value, dtype):
                return self.spell(dtype.numpy.type(value))
            case ir.Var(name, dtype):
                if name not in self.values or self.values[name][1] is not dtype:
                    raise self.fault(f"no Let here binds {name} as {dtype.value}")
                return self.values[name][0]
            case ir.Index(dim, _):
                return f"R.int64({self.dim(dim)})"
            case ir.Load():
                return self.load(expr)
            case ir.Call():
                return self.call(expr)
            case ir.Fold():
                return self.fold(expr)
            case ir.InWholeLines(length, cells, places):
                begin = ", ".join(f"({', '.join(self.place(name, index))})" for name, index in places)
                return f"({self.dim(length)} == {cells} and R.in_whole_lines({begin}))"
            case ir.CellsToAlignment(cells, buffer, index, length):
                return f"R.until_aligned({cells}, {self.dim(length)}, {', '.join(self.place(buffer, index))})"
            case _:
                assert_never(expr)

    def load(self, load: ir.Load) -> str:
        memory = self.memory(load.buffer)[1]
        if memory.dtype.compute is not load.dtype:
            raise self.fault(f"a Load of {load.dtype.value} from {load.buffer}, which is {memory.dtype.value}")
        name, at = self.place(load.buffer, load.index)
        read = f"{name}.load({at})"
        if not isinstance(memory, ir.Buffer) or memory.role is not ir.Role.INPUT:
            for race_detector, index in self.loops[self.memory(load.buffer)[2] :]:
                read = f"{race_detector}.loads({index}, {name}, {at}) or {read}"
        if load.where is None:
            return f"({read})"
        if load.other is None or load.other.dtype is not load.dtype or load.where.dtype is not DType.BOOL:
            raise self.fault(f"a masked Load of {load.buffer} needs a bool and another {load.dtype.value}")
        return f"(({read}) if {self.expression(load.where)} else {self.expression(load.other)})"

    def condition(self, condition: ir.Expr) -> str:
        if condition.dtype is not DType.BOOL:
            raise self.fault(f"an If needs a bool, not {condition.dtype.value}")
        return self.expression(condition)

    def call(self, call: ir.Call) -> str:
        operands = ", ".join(map(self.expression, call.operands))
        if call.function == "cast":
            return f"R.cast({operands}, {self.spell(call.dtype)})"
        if call.function not in OPERATORS:
            raise self.fault(f"{call.function} is not in the operator table")
        if (dtype := dtype_of(call.function, tuple(operand.dtype for operand in call.operands))) is not call.dtype:
            raise self.fault(f"{call.function} gives {dtype.value}, not {call.dtype.value}")
        scalar, function = self.spell(call.dtype.numpy.type), self.spell(OPERATORS[call.function].evaluate)
        return f"{scalar}({function}({operands}))"

    def fold(self, fold: ir.Fold) -> str:
        """Write a fold as serial loops before the statement that contains it, and return the text of its result."""
        monoid, dtype = MONOIDS[fold.monoid], fold.value.dtype
        if dtype.kind not in monoid.accepts or monoid.result(dtype).compute is not fold.dtype:
            raise self.fault(f"{fold.monoid} of {dtype.value} does not give {fold.dtype.value}")
        empty = tuple(s.numpy.type(x) for s, x in zip(monoid.states(dtype), monoid.init(dtype), strict=True))
        spelled, state, position = self.spell(monoid), self.let(self.spell(empty)), self.let("-1")
        with ExitStack() as nest:
            for level, (var, extent) in enumerate(fold.loops, 1):
                rounds = fold.tile.rounds(extent) if fold.tile and level == len(fold.loops) else extent
                name = self.fresh()
                nest.enter_context(self.block(f"for {name} in range({self.dim(rounds)}):"))
                self.indices[var] = name
            self.write(f"{position} += 1")
            self.body(fold.body)
            at = position if fold.at is None else self.dim(fold.at)
            lifted = f"{spelled}.lift(R, {self.expression(fold.value)}, R.int64({at}))"
            self.write(f"{state} = {spelled}.merge(R, {state}, {lifted})")
        return f"{self.spell(fold.dtype.numpy.type)}({spelled}.finish(R, {state}))"

    # Memory and indices.

    def memory(self, name: str) -> tuple[str, ir.Buffer | ir.Alloc, int]:
        if name not in self.memories:
            raise self.fault(f"there is no memory {name} here")
        return self.memories[name]

    def place(self, name: str, index: Shape) -> tuple[str, str]:
        """A cell: its memory, and its index there; a single index into another rank is an offset into packed memory."""
        text, memory, _ = self.memory(name)
        flat = not isinstance(memory, ir.Buffer) or memory.strides is None
        if len(index) != len(memory.shape) and not (flat and len(index) == 1):
            raise self.fault(f"{name} of rank {len(memory.shape)} with {len(index)} indices")
        return text, self.dims(index)

    def dims(self, dims: Shape) -> str:
        return ", ".join(map(self.dim, dims))

    def dim(self, dim: Dim) -> str:
        """A Dim as Python text: integers of any width."""
        return " + ".join("*".join([str(factor), *map(self.atom, atoms)]) for atoms, factor in dim.terms) or "0"

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, str):
            if atom not in self.indices:
                raise self.fault(f"no loop here, and no input, binds {atom}")
            return self.indices[atom]
        left, right = self.dim(atom.left), self.dim(atom.right)
        if atom.kind == "max":
            return f"max({left}, {right})"
        return f"(({left}) {'//' if atom.kind == 'floordiv' else '%'} ({right}))"


def _tuple(parts: Iterable[str]) -> str:
    return "(" + "".join(f"{part}, " for part in parts) + ")"


def _sizes(kernel: ir.Kernel) -> frozenset[str]:
    """The sizes that buffers, loops and indices name."""
    dims = [dim for buffer in kernel.buffers for dim in buffer.shape]
    for launch in kernel.launches:
        dims += [] if launch.when is None else dims_in((ir.Let("", launch.when),))
        dims += [*(tile.size for tile in launch.tiles), *all_dims(launch.body)]
    return frozenset(name for dim in dims for name in dim.names if not name.startswith("#"))
