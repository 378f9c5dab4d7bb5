"""Lint of host clocks around launches: a launch returns before its kernel has run, so its time is missing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING

from noyau.errors import FindingKind
from noyau.kernels.c.syntax import Syntax, plain_name, syntax
from noyau.sanitizer.lint.diagnostics import Diagnostic, dotted_name

if TYPE_CHECKING:
    from tree_sitter import Node

_CLOCKS = frozenset("time.time time.perf_counter time.perf_counter_ns time.time_ns time.monotonic time.monotonic_ns "
                    "timeit.default_timer datetime.now datetime.datetime.now".split())  # fmt: skip
_TIMERS = frozenset({"timeit.timeit", "timeit.repeat", "timeit.Timer"})
_WAITS = frozenset(
    "synchronize copy_to_host item cpu numpy tolist asnumpy get block_until_ready elapsed_time elapsed_ms wait "
    "do_bench do_bench_cudagraph".split()
)
_GRIDS = ("cuda.jit", "triton.jit", "triton.autotune", "triton.heuristics")
_WAIT = "cuda.synchronize()"


class ClockAction(Enum):
    """An action that matters to clocks."""

    CLOCK = auto()
    LAUNCH = auto()
    WAIT = auto()
    ELAPSED = auto()


@dataclass(frozen=True, slots=True)
class ClockEvent:
    """An action on a line. `name`: the kernel of a launch, the variable of a clock, or the start variable of a
    difference; `end`: the end variable of a difference, empty if the clock is read there."""

    what: ClockAction
    file: str
    line: int
    name: str = ""
    end: str = ""
    inside: int = 0  # the line of the launch within the called function


@dataclass(slots=True)
class Reader:
    """Reads texts in order. `names`: what imported names stand for; `launchers`: functions that launch without a wait,
    with the launch; `waiters`: functions that wait last; `on_host`: NumPy arrays, for which a launch waits."""

    kernels: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    launchers: dict[str, ClockEvent] = field(default_factory=dict)
    waiters: set[str] = field(default_factory=set)
    on_host: set[str] = field(default_factory=set)
    wait: str = _WAIT

    def read(self, tree: ast.Module, file: str) -> list[ClockEvent]:
        """Read the events of a text outside its functions, and remember its functions."""
        for node in ast.walk(tree):
            self._know(node)
        functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
        for function in (each for each in functions if each.name not in self.kernels):
            events = self.events(function.body, file)
            actions = [each for each in events if each.what in (ClockAction.LAUNCH, ClockAction.WAIT)]
            if actions and actions[-1].what is ClockAction.LAUNCH:
                self.launchers[function.name] = actions[-1]
            elif actions:
                self.waiters.add(function.name)
        return list(self.events(tree.body, file))

    def _know(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names=names):
                self.names |= {each.asname or each.name: each.name for each in names}
            case ast.ImportFrom(module=module, names=names) if module:
                self.names |= {each.asname or each.name: f"{module}.{each.name}" for each in names}
            case ast.FunctionDef(name=name, decorator_list=marks) if any(map(self._is_grid, marks)):
                self.kernels.add(name)
                self.wait = "torch.cuda.synchronize()" if any("triton" in self._full(m) for m in marks) else _WAIT
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=func)):
                if self._is_grid(func) or any(self._full(each).endswith(_GRIDS) for each in ast.walk(func)):
                    self.kernels.add(name)
                elif self._full(func).startswith(("numpy.", "np.")):
                    self.on_host.add(name)
            case _:
                return

    def _is_grid(self, mark: ast.AST) -> bool:
        return self._full(mark.func if isinstance(mark, ast.Call) else mark).endswith(_GRIDS)

    def _full(self, node: ast.AST) -> str:
        """Return a dotted name with its first part resolved through imports."""
        first, dot, rest = dotted_name(node).partition(".")
        return f"{self.names.get(first, first)}{dot}{rest}"

    # Events of statements, in the order of the text.

    def events(self, body: Iterable[ast.AST], file: str) -> Iterator[ClockEvent]:
        for node in body:
            match node:
                case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef() | ast.Lambda():
                    continue
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if self._is_clock(call):
                    yield ClockEvent(ClockAction.CLOCK, file, node.lineno, name)
                case ast.BinOp(left=left, op=ast.Sub(), right=ast.Name(id=start)) if self._is_clock(left):
                    yield ClockEvent(ClockAction.ELAPSED, file, node.lineno, start)
                case ast.BinOp(left=ast.Name(id=end), op=ast.Sub(), right=ast.Name(id=start)):
                    yield ClockEvent(ClockAction.ELAPSED, file, node.lineno, start, end)
                case _:
                    yield from self.events(ast.iter_child_nodes(node), file)
                    if isinstance(node, ast.Call):
                        yield from self._call(node, file)

    def _is_clock(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and self._full(node.func) in _CLOCKS

    def _call(self, node: ast.Call, file: str) -> Iterator[ClockEvent]:
        name, callee = self._launched_kernel(node), node.func.id if isinstance(node.func, ast.Name) else ""
        if name and not any(isinstance(each, ast.Name) and each.id in self.on_host for each in node.args):
            yield ClockEvent(ClockAction.LAUNCH, file, node.lineno, name)
        elif callee in self.launchers:
            launch = self.launchers[callee]
            yield replace(launch, file=file, line=node.lineno, inside=launch.inside or launch.line)
        elif name or callee in self.waiters or (isinstance(node.func, ast.Attribute) and node.func.attr in _WAITS):
            yield ClockEvent(ClockAction.WAIT, file, node.lineno)

    def _launched_kernel(self, node: ast.Call) -> str:
        """Return the kernel that a call launches, or ""."""
        if not isinstance(node.func, ast.Subscript):
            return ""
        kernel = dotted_name(node.func.value)
        is_pair = isinstance(node.func.slice, ast.Tuple) and len(node.func.slice.elts) >= 2
        has_cuda = any(full.startswith("numba") and "cuda" in full for full in self.names.values())
        return kernel if kernel in self.kernels or (is_pair and has_cuda and kernel) else ""

    # Calls of timeit.

    def time_remarks(self, tree: ast.AST, file: str) -> Iterator[Diagnostic]:
        """Yield a remark for each call of timeit on a statement that launches without waiting."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and self._full(node.func) in _TIMERS and node.args:
                launch = last_pending_launch(self._statement(node.args[0], file))
                if launch is not None:
                    yield clock_diagnostic(launch, node.lineno, file, ast.unparse(node.func), self.wait)

    def _statement(self, node: ast.expr, file: str) -> Sequence[ClockEvent]:
        match node:
            case ast.Lambda(body=body):
                return list(self.events([body], file))
            case ast.Constant(value=str() as text):
                try:
                    return [replace(each, line=node.lineno) for each in self.events(ast.parse(text).body, file)]
                except SyntaxError:
                    return []
            case ast.Name(id=name) if name in self.launchers:
                return [self.launchers[name]]
            case _:
                return []


def diagnose_clocks(texts: Sequence[tuple[ast.Module, str]]) -> tuple[list[Diagnostic], Reader]:
    """Report each host clock that is read while a kernel may still run, over texts in order (the cells of a notebook,
    or one file). The second result is the reader, which knows their kernels."""
    reader, diagnostics = Reader(), list[Diagnostic]()
    top: list[ClockEvent] = []
    for tree, file in texts:
        top += reader.read(tree, file)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name not in reader.kernels:
                diagnostics += unwaited_intervals(list(reader.events(node.body, file)), reader.wait)
        diagnostics += reader.time_remarks(tree, file)
    return [*diagnostics, *unwaited_intervals(top, reader.wait)], reader


def last_pending_launch(events: Sequence[ClockEvent]) -> ClockEvent | None:
    """Return the last launch, if no wait follows."""
    actions = [each for each in events if each.what in (ClockAction.LAUNCH, ClockAction.WAIT)]
    return actions[-1] if actions and actions[-1].what is ClockAction.LAUNCH else None


def clock_diagnostic(launch: ClockEvent, line: int, file: str, clock: str, wait: str) -> Diagnostic:
    """Diagnose a clock that is read on a line while a kernel may still run; `wait` is the call that would wait."""
    where = "on this line" if (launch.file, launch.line) == (file, line) else f"on line {launch.line}"
    message = f"{clock} does not wait for {launch.name}, launched {where}: what is timed is the launch alone"
    other = launch.inside or launch.line
    mend = f"call {wait} before the clock is read, or time with events"
    other_line = other if launch.file == file and other != line else 0
    return Diagnostic(FindingKind.LAUNCH, file, line, message, mend, launch.name, other_line=other_line)


def unwaited_intervals(events: Sequence[ClockEvent], wait: str) -> Iterator[Diagnostic]:
    """Yield a remark for each difference of two clocks around a launch without a wait."""
    clocks: dict[str, int] = {}  # variables that hold a clock, with the event's index
    for number, each in enumerate(events):
        if each.what is ClockAction.CLOCK:
            clocks[each.name] = number
        if each.what is not ClockAction.ELAPSED:
            continue
        start, end = clocks.get(each.name), clocks.get(each.end) if each.end else number
        launch = None if start is None or end is None else last_pending_launch(events[start:end])
        if launch is not None and end is not None:
            yield clock_diagnostic(launch, events[end].line, events[end].file, "the clock of the host", wait)


# Programs in CUDA C++: the events of each function in execution order, as those of Python above. A call of an unknown
# function counts as a wait, so nothing is reported after it.
_C_WAIT = "cudaDeviceSynchronize()"
_C_WAITS = frozenset(
    "cudaDeviceSynchronize cudaStreamSynchronize cudaEventSynchronize cudaThreadSynchronize cudaEventElapsedTime "
    "cudaStreamQuery cudaEventQuery cudaDeviceReset cudaFree cudaFreeHost cudaMemcpy cudaMemcpy2D cudaMemcpy3D "
    "cudaMemcpyToSymbol cudaMemcpyFromSymbol".split()
)
_QUIET = frozenset(  # calls that do not wait for a GPU
    "dim3 size_t static_cast reinterpret_cast const_cast dynamic_cast duration duration_cast time_point "
    "milliseconds microseconds nanoseconds sizeof alignof decltype defined printf fprintf sprintf snprintf puts "
    "putchar fflush malloc calloc free memset memcpy rand srand exit abort assert atoi atol atof strtol abs fabs "
    "fabsf sqrt sqrtf ceil floor pow min max difftime timersub push_back emplace_back resize reserve data size "
    "begin end count time_since_epoch c_str str front back at".split()
)
_C_CLOCKS = re.compile(r"[\w:]+::now|clock|omp_get_wtime|MPI_Wtime")
_CLOCKS_INTO = frozenset("clock_gettime gettimeofday timespec_get QueryPerformanceCounter".split())
_PINNED = re.compile(r"\bcudaMallocHost\b|\bcudaHostAlloc\b|\bcudaHostRegister\b|\bcudaMallocManaged\b")
_OF_CUDA = re.compile(r"cuda(?!\w*(?:check|safe|assert))[A-Z]", re.IGNORECASE)  # others are the user's functions


def diagnose_c_clocks(text: str, file: str) -> list[Diagnostic]:
    """Report each host clock that is read while a kernel may still run, in the functions of a text."""
    if "<<<" not in text:
        return []
    tree = syntax(text, "cuda")
    on_device = {each.name for each in tree.functions if each.is_on_device}
    bodies = [*tree.macros, *((each.name, each.body) for each in tree.functions if each.body and not each.is_on_device)]
    reader = _Reader(tree, file, on_device, bool(_PINNED.search(text)))
    for _ in range(2):  # a function may stand above its callees
        for name, body in bodies:
            reader.summarise(name, body)
    remarks = [remark for _, body in bodies for remark in unwaited_intervals(list(reader.events(body)), _C_WAIT)]
    return list(dict.fromkeys(remarks))  # seconds and microseconds are two differences


@dataclass(slots=True)
class _Reader:
    """A reader of functions. `known`: the event that a call of each amounts to, None if it neither launches, waits nor
    reads a clock; `is_pinned`: whether asynchronous copies may finish late, as host memory is not pageable."""

    tree: Syntax
    file: str
    on_device: set[str]
    is_pinned: bool
    known: dict[str, ClockEvent | None] = field(default_factory=dict)

    def summarise(self, name: str, body: Node) -> None:
        """Summarise a function by the event that its call amounts to; of functions of one name a waiting one counts."""
        events = list(self.events(body))
        actions = [each for each in events if each.what in (ClockAction.LAUNCH, ClockAction.WAIT)]
        last = actions[-1] if actions else None
        if not actions and events and all(each.what is ClockAction.CLOCK for each in events):
            last = events[-1]
        before = self.known.get(name)
        self.known[name] = before if before is not None and before.what is ClockAction.WAIT and actions else last

    def events(self, body: Node) -> Iterator[ClockEvent]:
        """Yield the events of a function's statements; those of an expression follow those of its operands."""
        clocks: dict[str, int] = {}  # variables that hold a clock, and the end of its call
        for node in _in_order(body):
            match node.type:
                case "call_expression":
                    for event in self._call(node):
                        if event.what is ClockAction.CLOCK and event.name:
                            clocks[event.name] = node.end_byte
                        yield event
                case "binary_expression" if node.children[1].type == "-":
                    yield from self._difference(node.children[0], node.children[2], clocks)
                case "argument_list" if node.named_child_count > 1:
                    yield from self._difference(node.named_children[0], node.named_children[1], clocks)

    def _call(self, node: Node) -> Iterator[ClockEvent]:
        """Yield a launch, a reading of a clock, or the event that a call amounts to."""
        line = node.start_point.row + 1
        launch = self.tree.launch(node)
        if launch is not None:
            yield ClockEvent(ClockAction.LAUNCH, self.file, line, launch.name)
            return
        if node.parent is not None and self.tree.launch(node.parent) is not None:
            return  # `f<<<1, 2>>>` of a launch
        callee = node.child_by_field_name("function")
        full = self._name(callee) if callee is not None else ""
        name, event = plain_name(full), self.known.get(plain_name(full))
        if _C_CLOCKS.fullmatch(full) or name in _CLOCKS_INTO or (event is not None and event.what is ClockAction.CLOCK):
            yield self._reading(node, line)
        elif event is not None and event.what is ClockAction.LAUNCH:
            yield replace(event, line=line, inside=event.inside or event.line)
        elif self._waits(full, name, event, self.tree.source(node)):
            yield ClockEvent(ClockAction.WAIT, self.file, line)

    def _name(self, callee: Node) -> str:
        """Return the name of a callee, of a method the last part; "" without a name."""
        if callee.type == "field_expression":
            callee = callee.named_children[-1]
        has_name = callee.type.endswith("identifier") or callee.type in ("template_function", "template_method")
        return re.sub(r"\s*<.*", "", self.tree.source(callee), flags=re.DOTALL) if has_name else ""

    def _waits(self, full: str, name: str, event: ClockEvent | None, call: str) -> bool:
        """Whether a call may wait. A copy within the device does not; an asynchronous one to pageable memory does."""
        if name == "cudaMemcpyAsync":
            return not self.is_pinned and "DeviceToHost" in call
        if name in _C_WAITS:
            return "DeviceToDevice" not in call
        if event is not None:
            return event.what is ClockAction.WAIT
        is_quiet = name in _QUIET or name in self.on_device or full.startswith(("std::", "omp_"))
        return bool(name) and name not in self.known and not is_quiet and not _OF_CUDA.match(name)

    def _reading(self, call: Node, line: int) -> ClockEvent:
        """Return a reading of a clock, with its variable or as part of a difference or a sum."""
        arguments = call.child_by_field_name("arguments")
        cells = [each for each in arguments.named_children if each.type == "pointer_expression"] if arguments else []
        if cells:
            return ClockEvent(ClockAction.CLOCK, self.file, line, self._variable(cells[0]))
        node, outer = call, call.parent
        while outer is not None and not outer.type.endswith("statement"):
            match outer.type:
                case "binary_expression" if outer.children[1].type == "-" and outer.children[0] == node:
                    return ClockEvent(ClockAction.ELAPSED, self.file, line, self._variable(outer.children[2]))
                case "assignment_expression":
                    what = ClockAction.ELAPSED if outer.children[1].type == "+=" else ClockAction.CLOCK
                    return ClockEvent(what, self.file, line, self._variable(outer.children[0]))
                case "init_declarator":
                    return ClockEvent(ClockAction.CLOCK, self.file, line, self._variable(outer.children[0]))
            node, outer = outer, outer.parent
        return ClockEvent(ClockAction.CLOCK, self.file, line)

    def _difference(self, one: Node, other: Node, clocks: Mapping[str, int]) -> Iterator[ClockEvent]:
        """Yield the elapsed time `b - a`, or `difftime(b, a)`, of two variables that hold clocks."""
        names = [self._variable(one), self._variable(other)]
        if all(name in clocks for name in names):
            begin, end = sorted(names, key=clocks.__getitem__)
            yield ClockEvent(ClockAction.ELAPSED, self.file, one.start_point.row + 1, begin, end)

    def _variable(self, node: Node) -> str:
        """Return the variable of an operand such as `t`, `t.tv_sec`, `t[0]` or `&t`; "" for others."""
        while node.type in ("field_expression", "subscript_expression", "pointer_expression", "pointer_declarator"):
            node = node.named_children[0]
        return self.tree.source(node) if node.type == "identifier" else ""


def _in_order(node: Node) -> Iterator[Node]:
    """Yield the nodes of a tree, children first."""
    waiting = [(node, False)]
    while waiting:
        each, is_done = waiting.pop()
        if is_done or not each.child_count:
            yield each
        else:
            waiting.append((each, True))
            waiting += ((child, False) for child in reversed(each.children))
