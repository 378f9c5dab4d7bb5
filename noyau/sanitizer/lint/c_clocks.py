"""Clocks of the host around launches, in a program in CUDA C++: what each function of its text does, in order of its
lines, as `clocks.py` reads Python. A call that is not seen through may wait, so that nothing is said after it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from noyau.kernels.c.prototypes import blanked
from noyau.sanitizer.lint.clocks import Event, What, elapsed
from noyau.sanitizer.lint.diagnostics import Remark

_WAIT = "cudaDeviceSynchronize()"
_WAITS = frozenset(
    "cudaDeviceSynchronize cudaStreamSynchronize cudaEventSynchronize cudaThreadSynchronize cudaEventElapsedTime "
    "cudaStreamQuery cudaEventQuery cudaDeviceReset cudaFree cudaFreeHost cudaMemcpy cudaMemcpy2D cudaMemcpy3D "
    "cudaMemcpyToSymbol cudaMemcpyFromSymbol".split()
)
_WORDS = frozenset("if for while switch catch".split())  # before a block that is no function's
_NEAR = 2000  # characters of a statement that are looked at beside a call
_QUIET = frozenset(  # calls that wait for no GPU
    "dim3 void bool char short int long float double unsigned size_t static_cast reinterpret_cast const_cast "
    "dynamic_cast duration duration_cast time_point milliseconds microseconds nanoseconds if for while switch return "
    "sizeof alignof decltype catch defined printf fprintf sprintf snprintf puts putchar fflush malloc calloc free "
    "memset memcpy rand srand exit abort assert atoi atol atof strtol abs fabs fabsf sqrt sqrtf ceil floor pow min "
    "max difftime timersub push_back emplace_back resize reserve data size begin end count time_since_epoch c_str str "
    "front back at".split()
)
_CLOCK = re.compile(
    r"(?P<into>\b(?:clock_gettime|gettimeofday|timespec_get|QueryPerformanceCounter)\s*\([^;]*?&\s*(?P<cell>\w+)[^;]*?\))"
    r"|(?:\b[\w:]+::now|\bclock|\bomp_get_wtime|\bMPI_Wtime)\s*\(\s*\)"
)
_CALL = re.compile(
    r"(?P<launch>[A-Za-z_][\w:]*)\s*(?:<[^<>;(){}]*>)?\s*<<<|(?P<call>[A-Za-z_][\w:]*)\s*(?:<[\w:,\s*]*>)?\s*\("
)
_DIFFERENCE = re.compile(r"\b(\w+)(?:(?:\.|->)\w+|\[[^\]]*\])*\s*-\s*(\w+)\b|\(\s*&?(\w+)\s*,\s*&?(\w+)\b")
_HEAD = re.compile(r"\b(?P<name>\w+)\s*\([^;{}]{0,4000}\)\s*(?:const\b\s*|noexcept\b\s*|override\b\s*)*\{")
_MARKED = re.compile(r"\b(?:__launch_bounds__|__attribute__|alignas|__align__)\s*\((?:[^()]|\([^()]*\))*\)")
_LINE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_MACRO = re.compile(r"#[ \t]*define[ \t]+(\w+)(?:\([^)\n]*\))?((?:\\\n|[^\n])*)")
_PINNED = re.compile(r"\bcudaMallocHost\b|\bcudaHostAlloc\b|\bcudaHostRegister\b|\bcudaMallocManaged\b")
_BEFORE = re.compile(r"(?:\b(\w+)|(?<=[\w>*])>)\s+$")  # what stands before the name of a variable that is declared
_OF_CUDA = re.compile(r"cuda(?!\w*(?:check|safe|assert))[A-Z]", re.IGNORECASE)  # others are of the user's own


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a text, or a macro: its body without comments and strings, and the line that this begins on."""

    name: str
    text: str
    line: int
    is_on_device: bool = False


def functions_in(text: str) -> list[Function]:
    """The functions that a text defines, and its macros, as far as they are found."""
    clean = _MARKED.sub(_spaces, blanked(text))
    made = [
        Function(each[1], each[2].replace("\\\n", " \n"), clean.count("\n", 0, each.start(2)) + 1)
        for each in _MACRO.finditer(clean)
    ]
    bare, at = _LINE.sub(_spaces, clean), 0
    while found := _HEAD.search(bare, at):
        start = found.end() - 1
        at = _end_of(bare, start)
        if found["name"] not in _WORDS:
            before = re.split(r"[;{}]", bare[: found.start()])[-1]
            is_on_device = "__global__" in before or ("__device__" in before and "__host__" not in before)
            line = bare.count("\n", 0, start) + 1
            made.append(Function(found["name"], bare[start:at], line, is_on_device))
    return made


def unwaited(text: str, file: str) -> list[Remark]:
    """A remark for each clock of the host that is read while a kernel may still run, in the functions of a text."""
    if not _CLOCK.search(text) or "<<<" not in text:
        return []
    functions = functions_in(text)
    reader = _Reader(file, {each.name for each in functions if each.is_on_device}, bool(_PINNED.search(text)))
    of_host = [each for each in functions if not each.is_on_device]
    for _ in range(2):  # one may stand above what it calls
        for each in of_host:
            reader.summarise(each)
    found = [made for each in of_host for made in elapsed(list(reader.events(each)), _WAIT)]
    return list(dict.fromkeys(found))  # seconds and microseconds are two differences


@dataclass(slots=True)
class _Reader:
    """Reads functions. `known`: what a call of one comes to, nothing where it neither launches, nor waits, nor reads a
    clock; `is_pinned`: copies that do not wait may indeed not, for the host's memory is not paged."""

    file: str
    on_device: set[str]
    is_pinned: bool
    known: dict[str, Event | None] = field(default_factory=dict)

    def summarise(self, function: Function) -> None:
        """Know what a call of a function comes to. Of those of one name the one that waits counts."""
        events = list(self.events(function))
        done = [each for each in events if each.what in (What.LAUNCH, What.WAIT)]
        made = done[-1] if done else None
        if not done and events and all(each.what is What.CLOCK for each in events):
            made = events[-1]
        held = self.known.get(function.name)
        self.known[function.name] = held if held is not None and held.what is What.WAIT and done else made

    def events(self, function: Function) -> Iterator[Event]:
        """What the statements of a function do."""
        clocks: dict[str, int] = {}
        line = function.line
        for number, statement in enumerate(re.split(r"[;{}]", function.text)):
            yield from self._done(statement, line)
            for event in self._read(statement, line, clocks):
                if event.what is What.CLOCK and event.name:
                    clocks[event.name] = number
                yield event
            line += statement.count("\n")

    # Launches and waits.

    def _done(self, statement: str, line: int) -> Iterator[Event]:
        at = 0
        for found in _CALL.finditer(statement):
            line, at = line + statement.count("\n", at, found.start()), found.start()
            if found["launch"]:
                yield Event(What.LAUNCH, self.file, line, found["launch"].rpartition(":")[2])
            elif not _CLOCK.match(statement, found.start()):
                yield from self._called(found["call"], statement, found.start(), line)

    def _called(self, name: str, statement: str, at: int, line: int) -> Iterator[Event]:
        held = self.known.get(name)
        if held is not None and held.what is What.LAUNCH:
            yield replace(held, line=line, inside=held.inside or held.line)
        elif self._waits(name, held, statement, at):
            yield Event(What.WAIT, self.file, line)

    def _waits(self, name: str, held: Event | None, statement: str, at: int) -> bool:
        """Whether a call waits, or may. A copy within the device does not; one that may return at once waits where the
        host's memory is paged."""
        if name == "cudaMemcpyAsync":
            return not self.is_pinned and "DeviceToHost" in statement[at : at + _NEAR]
        if name in _WAITS:
            return "DeviceToDevice" not in statement[at : at + _NEAR]
        return held.what is What.WAIT if held else name not in self.known and not self._is_quiet(name, statement, at)

    def _is_quiet(self, name: str, statement: str, at: int) -> bool:
        """Whether a call of what is not of this text waits for nothing: of the library, or none but a declaration."""
        if name in _QUIET or name in self.on_device or name.startswith(("std::", "omp_")):
            return True
        if _OF_CUDA.match(name) or re.match(r"\s*(?:const\s+)?dim3\b", statement):
            return True
        found = _BEFORE.search(statement, max(at - _NEAR // 10, 0), at)
        return found is not None and found[1] not in ("return", "else", "do", "case", "throw")

    # Clocks.

    def _read(self, statement: str, first: int, clocks: Mapping[str, int]) -> Iterator[Event]:
        """Readings in a statement, and differences; `clocks`: variables that one was read into, and where."""
        for start, end, cell in self._readings(statement):
            line = first + statement.count("\n", 0, start)
            yield self._reading(statement[:start], statement[end:], line, cell)
        for found in _DIFFERENCE.finditer(statement):
            one, other = found[1] or found[3], found[2] or found[4]
            if one in clocks and other in clocks:
                begin, last = sorted((one, other), key=clocks.__getitem__)
                line = first + statement.count("\n", 0, found.start())
                yield Event(What.ELAPSED, self.file, line, begin, last)

    def _readings(self, statement: str) -> Iterator[tuple[int, int, str]]:
        """Where clocks are read, and the variable where it is handed to the clock."""
        for found in _CLOCK.finditer(statement):
            yield found.start(), found.end(), found["cell"] or ""
        for found in _CALL.finditer(statement):
            held = self.known.get(found["call"] or "")
            if held is not None and held.what is What.CLOCK:
                given = re.match(r"[^;()]*\)", statement[found.end() :])
                end = found.end() + (given.end() if given else 0)
                handed = re.match(r"\s*&\s*(\w+)", statement[found.end() :])
                yield found.start(), end, handed[1] if handed else ""

    def _reading(self, before: str, after: str, line: int, cell: str) -> Event:
        less = re.match(r"[\s)]*-\s*(\w+)", after)
        target = re.search(r"(\w+)\s*([-+]?)=(?!=)\s*(-?)", before) or re.search(r"(\w+)\s*()()[({]\s*$", before)
        if less:
            return Event(What.ELAPSED, self.file, line, less[1])
        if target and target[2] == "+" and not cell:
            return Event(What.ELAPSED, self.file, line, target[1])
        return Event(What.CLOCK, self.file, line, cell or (target[1] if target else ""))


def _spaces(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def _end_of(text: str, start: int) -> int:
    """Behind the brace that closes the one at `start`."""
    depth = 0
    for found in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if found[0] == "{" else -1
        if not depth:
            return found.end()
    return len(text)
