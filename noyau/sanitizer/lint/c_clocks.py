"""Clocks of the host around launches, in a program in CUDA C++: the events of each function of its text, in the order
in which they happen, as `clocks.py` reads Python. A call of an unknown function may wait: nothing is said after it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from noyau.kernels.c.syntax import Syntax, plain_name, syntax
from noyau.sanitizer.lint.clocks import ClockAction, ClockEvent, unwaited_intervals
from noyau.sanitizer.lint.diagnostics import Diagnostic

if TYPE_CHECKING:
    from tree_sitter import Node

_WAIT = "cudaDeviceSynchronize()"
_WAITS = frozenset(
    "cudaDeviceSynchronize cudaStreamSynchronize cudaEventSynchronize cudaThreadSynchronize cudaEventElapsedTime "
    "cudaStreamQuery cudaEventQuery cudaDeviceReset cudaFree cudaFreeHost cudaMemcpy cudaMemcpy2D cudaMemcpy3D "
    "cudaMemcpyToSymbol cudaMemcpyFromSymbol".split()
)
_QUIET = frozenset(  # calls that wait for no GPU
    "dim3 size_t static_cast reinterpret_cast const_cast dynamic_cast duration duration_cast time_point "
    "milliseconds microseconds nanoseconds sizeof alignof decltype defined printf fprintf sprintf snprintf puts "
    "putchar fflush malloc calloc free memset memcpy rand srand exit abort assert atoi atol atof strtol abs fabs "
    "fabsf sqrt sqrtf ceil floor pow min max difftime timersub push_back emplace_back resize reserve data size "
    "begin end count time_since_epoch c_str str front back at".split()
)
_CLOCKS = re.compile(r"[\w:]+::now|clock|omp_get_wtime|MPI_Wtime")
_CLOCKS_INTO = frozenset("clock_gettime gettimeofday timespec_get QueryPerformanceCounter".split())
_PINNED = re.compile(r"\bcudaMallocHost\b|\bcudaHostAlloc\b|\bcudaHostRegister\b|\bcudaMallocManaged\b")
_OF_CUDA = re.compile(r"cuda(?!\w*(?:check|safe|assert))[A-Z]", re.IGNORECASE)  # others are of the user's own


def diagnose_clocks(text: str, file: str) -> list[Diagnostic]:
    """A remark for each clock of the host that is read while a kernel may still run, in the functions of a text."""
    if "<<<" not in text:
        return []
    tree = syntax(text, "cuda")
    on_device = {each.name for each in tree.functions if each.is_on_device}
    bodies = [*tree.macros, *((each.name, each.body) for each in tree.functions if each.body and not each.is_on_device)]
    reader = _Reader(tree, file, on_device, bool(_PINNED.search(text)))
    for _ in range(2):  # one may stand above what it calls
        for name, body in bodies:
            reader.summarise(name, body)
    remarks = [remark for _, body in bodies for remark in unwaited_intervals(list(reader.events(body)), _WAIT)]
    return list(dict.fromkeys(remarks))  # seconds and microseconds are two differences


@dataclass(slots=True)
class _Reader:
    """Reads functions. `known`: the event that a call of one comes to, None where it neither launches, nor waits, nor
    reads a clock; `is_pinned`: copies that do not wait may indeed not, for the host's memory is not paged."""

    tree: Syntax
    file: str
    on_device: set[str]
    is_pinned: bool
    known: dict[str, ClockEvent | None] = field(default_factory=dict)

    def summarise(self, name: str, body: Node) -> None:
        """Know the event that a call of a function comes to. Of those of one name the one that waits counts."""
        events = list(self.events(body))
        actions = [each for each in events if each.what in (ClockAction.LAUNCH, ClockAction.WAIT)]
        last = actions[-1] if actions else None
        if not actions and events and all(each.what is ClockAction.CLOCK for each in events):
            last = events[-1]
        before = self.known.get(name)
        self.known[name] = before if before is not None and before.what is ClockAction.WAIT and actions else last

    def events(self, body: Node) -> Iterator[ClockEvent]:
        """The events of the statements of a function: those of an expression follow those of its operands."""
        clocks: dict[str, int] = {}  # variables that one was read into, and where
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
        """A launch, a reading of a clock, or what a call comes to."""
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
        if _CLOCKS.fullmatch(full) or name in _CLOCKS_INTO or (event is not None and event.what is ClockAction.CLOCK):
            yield self._reading(node, line)
        elif event is not None and event.what is ClockAction.LAUNCH:
            yield replace(event, line=line, inside=event.inside or event.line)
        elif self._waits(full, name, event, self.tree.source(node)):
            yield ClockEvent(ClockAction.WAIT, self.file, line)

    def _name(self, callee: Node) -> str:
        """The name of what is called: of a method its own; nothing where there is none."""
        if callee.type == "field_expression":
            callee = callee.named_children[-1]
        has_name = callee.type.endswith("identifier") or callee.type in ("template_function", "template_method")
        return re.sub(r"\s*<.*", "", self.tree.source(callee), flags=re.DOTALL) if has_name else ""

    def _waits(self, full: str, name: str, event: ClockEvent | None, call: str) -> bool:
        """Whether a call waits, or may. A copy within the device does not; an asynchronous one of paged memory does."""
        if name == "cudaMemcpyAsync":
            return not self.is_pinned and "DeviceToHost" in call
        if name in _WAITS:
            return "DeviceToDevice" not in call
        if event is not None:
            return event.what is ClockAction.WAIT
        is_quiet = name in _QUIET or name in self.on_device or full.startswith(("std::", "omp_"))
        return bool(name) and name not in self.known and not is_quiet and not _OF_CUDA.match(name)

    def _reading(self, call: Node, line: int) -> ClockEvent:
        """A reading of a clock: of a variable, or of the difference or the sum that it is a part of."""
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
        """`b - a`, or `difftime(b, a)`, of two variables that clocks were read into."""
        names = [self._variable(one), self._variable(other)]
        if all(name in clocks for name in names):
            begin, end = sorted(names, key=clocks.__getitem__)
            yield ClockEvent(ClockAction.ELAPSED, self.file, one.start_point.row + 1, begin, end)

    def _variable(self, node: Node) -> str:
        """The variable that an operand is, or is a part of: `t.tv_sec`, `t[0]`, `&t`; nothing for others."""
        while node.type in ("field_expression", "subscript_expression", "pointer_expression", "pointer_declarator"):
            node = node.named_children[0]
        return self.tree.source(node) if node.type == "identifier" else ""


def _in_order(node: Node) -> Iterator[Node]:
    """The nodes of a tree, each after those in it."""
    waiting = [(node, False)]
    while waiting:
        each, is_done = waiting.pop()
        if is_done or not each.child_count:
            yield each
        else:
            waiting.append((each, True))
            waiting += ((child, False) for child in reversed(each.children))
