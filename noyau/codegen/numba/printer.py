"""Language `numba`: Python that Numba compiles for the CPU, with loops on threads as prange; the text stands alone.

float16 and bfloat16 are arrays of uint16, their bits.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Sequence

from noyau.codegen.numba import intrinsics, lane_merges
from noyau.codegen.numba import math as numba_math
from noyau.codegen.numba.expressions import NumbaExpressions, is_number
from noyau.codegen.numba.launch import NumbaPrinter
from noyau.codegen.numba.tables import KINDS, NUMPY, RESERVED, NumbaNames, integer_function
from noyau.codegen.statements import INDENT
from noyau.codegen.tables import closed, opened
from noyau.compiler.schedules.cpu.strategy_choice import Options
from noyau.errors import GraphError
from noyau.ir.dims import Dim
from noyau.ir.loops import Buffer, Kernel, Launch, Role
from noyau.ir.walk import extent_of

WIDTH = 118

# Other than language c: more partial states, for each round of a fold waits until the one before has stored them; and
# one text for rows of any length and for what is left of them, for each takes a while to compile.
SCHEDULE = Options(lanes=64, short=False, pairs=False, turned="words", rests=False, lines=False)


def source(kernel: Kernel, comment: str = "") -> str:
    """The text of a kernel: a comment, the scalar functions it uses, and one function of its inputs, then its outputs,
    that returns 0; 1 where an index is out of bounds; 2 where a shape does not fit."""
    return together([kernel], comment)


def together(kernels: Sequence[Kernel], comment: str = "") -> str:
    """One text of several kernels, whose names differ. GraphError where a name cannot be that of a function."""
    functions, integers, preludes, bodies = set[str](), set[tuple[str, str]](), set[str](), list[str]()
    for kernel in kernels:
        plain = re.fullmatch(r"(?!noyau)[a-z]\w*", kernel.name, re.ASCII | re.IGNORECASE)
        if not plain or keyword.iskeyword(kernel.name) or kernel.name in RESERVED:
            raise GraphError(
                f"{kernel.name!r} cannot be the name of a Python function, or the text needs it for itself: "
                "give letters, digits and _"
            )
        caller = NumbaCaller(kernel)
        bodies.append(caller.text())
        functions |= caller.expressions.functions
        integers |= caller.expressions.integers
        preludes |= caller.expressions.preludes
    scalars = [numba_math.text(functions), *(integer_function(*key) for key in sorted(integers))]
    words = [intrinsics.words(preludes), lane_merges.text(preludes)]
    below = "\n\n\n".join(part for part in [*words, *scalars, *bodies] if part)
    head = [comment_text(comment), _imports(below), _kinds(below), numba_math.SCALAR if "@scalar" in below else ""]
    return "\n\n".join(part for part in head if part) + f"\n\n\n{below}\n"


def _imports(text: str) -> str:
    lines = ["import math", ""] if "math." in text else []
    lines += ["import numba", "import numpy as np"]
    names = ["types"] if "types." in text else []
    names += ["prange"] if "prange(" in text else []
    lines += ["from llvmlite import ir"] if "ir.IntType" in text else []
    lines += [f"from numba import {', '.join(sorted(names))}"] if names else []
    lines += ["from numba.core import cgutils"] if "cgutils." in text else []
    lines += ["from numba.extending import intrinsic"] if "@intrinsic" in text else []
    lines += ["from numba.np import arrayobj"] if "arrayobj." in text else []
    return "\n".join(lines)


def _kinds(text: str) -> str:
    """Short names for the types of NumPy that the text uses."""
    lines = [f"{name} = {kind}" for name, kind in NUMPY.items() if re.search(rf"\b{name}\b", text)]
    return "\n".join(lines)


def comment_text(text: str) -> str:
    """The text as Python comments, whatever stands in it."""
    safe = "".join(c if c == "\n" or 32 <= ord(c) < 127 else "?" for c in text)
    lines = [line if len(line) <= 4 * WIDTH else f"{line[: 4 * WIDTH]}..." for line in safe.strip().splitlines()]
    return "\n".join(f"# {line}".rstrip() for line in lines)


class NumbaCaller:
    """The function that a kernel is for its callers: sizes, checks, launches in order."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.names = NumbaNames(kernel)
        self.expressions = NumbaExpressions(kernel, self.names)
        self.ends = [buffer for buffer in kernel.buffers if buffer.role is not Role.SCRATCH]
        self.given: dict[str, str] = {}  # what launches are given for an input, where it is not the array

    def text(self) -> str:
        """The functions of the launches, then the kernel."""
        parts = list[str]()
        body = [*self.described(), *self.sizes(), *self.checks(), *self.numbers(), *self.scratch()]
        for position, launch in enumerate(self.kernel.launches):
            printer = NumbaPrinter(self.kernel, self.expressions)
            parts.append(printer.function(position, launch))
            lines = list(self.call(position, launch, printer))
            if launch.when is not None:
                body.append(f"if {self.expressions.top(launch.when)}:")
                lines = [f"{INDENT}{line}" for line in lines]
            body += lines
        names = ", ".join(self.names.value(buffer.name) for buffer in self.ends)
        indented = "\n".join(f"{INDENT}{line}" for line in [*body, "return 0"])
        head = f'@numba.njit(parallel=True, error_model="numpy", nogil=True)\ndef {self.kernel.name}({names}):'
        return "\n\n\n".join([*parts, f"{head}\n{indented}"])

    def described(self) -> Iterator[str]:
        for buffer in self.ends:
            shape = ", ".join(self.expressions.dim(dim) for dim in buffer.shape)
            layout = "" if buffer.strides is None else f", {buffer.layout}"
            yield f"# {self.names.value(buffer.name)}: {buffer.dtype.value}[{shape}], {buffer.role.value}{layout}"

    def sizes(self) -> Iterator[str]:
        """The sizes that the inputs give."""
        inputs = self.kernel.of(Role.INPUT)
        for binding in self.kernel.binding:
            buffer = inputs[binding.input]
            if binding.axis < len(buffer.shape):  # the others are strides, which arrays know themselves
                value = f"{self.names.value(buffer.name)}.shape[{binding.axis}]"
                if binding.offset != Dim.of(0):
                    value = f"({value} - {closed(self.expressions.dim(binding.offset))})"
                value = value if binding.factor == 1 else f"{value} // {binding.factor}"
                yield f"{self.names.atom(binding.size)} = {opened(value)}"

    def checks(self) -> Iterator[str]:
        """Shapes that the sizes do not fit end the kernel."""
        bound = {(b.input, b.axis) for b in self.kernel.binding if b.factor == 1 and b.offset == Dim.of(0)}
        for number, buffer in enumerate(self.ends):
            if any((number, axis) not in bound for axis in range(len(buffer.shape))):
                yield f"if {self.names.value(buffer.name)}.shape != {self.shape(buffer)}:"
                yield f"{INDENT}return 2"

    def shape(self, buffer: Buffer) -> str:
        dims = ", ".join(map(self.expressions.dim, buffer.shape))
        one = len(buffer.shape) == 1 or (not dims and buffer.role is Role.SCRATCH)
        return f"({dims or 1},)" if one else f"({dims})"

    def numbers(self) -> Iterator[str]:
        """Inputs without axes, under names of their own."""
        for buffer in filter(is_number, self.ends):
            whole = self.names.value(buffer.name)
            self.given[whole] = self.names.fresh(f"{whole}_value")
            yield f"{self.given[whole]} = {whole}[()]"

    def scratch(self) -> Iterator[str]:
        for buffer in self.kernel.of(Role.SCRATCH):
            kind = NUMPY.get(KINDS[buffer.dtype], "np.bool_")
            yield f"{self.names.value(buffer.name)} = np.empty({self.shape(buffer)}, {kind})"

    def call(self, position: int, launch: Launch, printer: NumbaPrinter) -> Iterator[str]:
        """A launch: on one thread, or its items in as many parts as there are threads."""
        arguments = ", ".join(self.given.get(name, name) for name in printer.given)
        call, checked = f"{self.kernel.name}_{position}({arguments}", printer.fails
        if not printer.parallel:
            yield f"status = {call})" if checked else f"{call})"
        else:
            yield f"items = {self.expressions.dim(extent_of(launch))}"
            yield "parts = min(items, numba.get_num_threads())"
            yield from ["status = 0"] if checked else []
            yield "for part in prange(parts):"
            span = "i64(part) * items // parts, (i64(part) + 1) * items // parts)"
            call = f"{call}, {span}" if arguments else f"{call}{span}"
            yield f"{INDENT}status = max(status, {call})" if checked else f"{INDENT}{call}"
        if checked:
            yield "if status != 0:"
            yield f"{INDENT}return status"
