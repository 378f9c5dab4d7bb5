"""The kernel that noyau generates for a path, as a plain C function to begin with: right, and ready to be changed.

Where one launch does all, it takes `begin` and `end`, and is called for pieces of its work.
"""

from __future__ import annotations

import re

from noyau.codegen.c import printer as c_printer
from noyau.codegen.c.spellings import TYPES
from noyau.codegen.numpy.printer import NumpyFunction
from noyau.codegen.numpy.terms import SizeText
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.errors import UnsupportedError
from noyau.ir.graph import Graph
from noyau.ir.loops import Kernel, Role
from noyau.ir.walk import extent_of
from noyau.kernels.c.parameters import RANGE

WIDTH = 110  # of a line of the files
OUT = "out"  # the only result of an op bears no name, and is called so
_HEAD = """The kernel that noyau generates for this path: the last function. Change it, or write another one.
Its parameters bear the names of the op's inputs, outputs, sizes and constants; arrays are packed, in C order."""
_PIECES = """
Each call is for the items from begin to end: disjoint pieces, in any order, on any threads."""
_PLAIN = Options(short=False, pairs=False)  # rows, and no tiles of them: that is easier to change
_ASKED = ("bind", "shape", "item_bytes")  # functions of a runtime alone
_WHOLE = (*_ASKED, "extent", "scratch_bytes")


def start_of(graph: Graph, written: NumpyFunction) -> tuple[str, str]:
    """The C text of a function `written.name` that computes the graph; what it is given is called as in `written`. And
    what the op has to say of how far `begin` and `end` go, as Python; "" where that need not be said.

    UnsupportedError, with the reason, where the path does not become one kernel."""
    kernel = schedule(lower(normalise(graph), f"{written.name}_generated"), _PLAIN)
    items = _items(graph, kernel, written)
    head = _HEAD if items is None else f"{_HEAD}{_PIECES}"
    text, _, _ = c_printer.source(kernel, head).partition(f"static const int32_t {kernel.name}_dtypes")
    gone = "|".join(_ASKED if items is None else _WHOLE)
    functions = re.compile(rf"static \w+ {kernel.name}_(?:{gone})\(.*?\n\}}\n\n", re.DOTALL)
    function = _function(graph, kernel, written, in_pieces=items is not None)
    return f"{functions.sub('', text)}{function}\n", items or ""


def _items(graph: Graph, kernel: Kernel, written: NumpyFunction) -> str | None:
    """Extent of the pieces of the kernel, as `launch=` has it, "" where that is the first dim of the first output; None
    for a kernel of several launches, of a fixed number of items, or of one that needs more than arithmetic."""
    extent, names = extent_of(kernel.launches[0]), set[str]()
    if len(kernel.launches) > 1 or extent.constant is not None or not extent.names <= written.sizes.keys():
        return None
    first = graph[graph.outputs[0]].shape
    if first and first[0] == extent:
        return ""
    text = SizeText(lambda name: written.sizes[name], names).text(extent)
    if re.search(r"\b(max|min)\(", text):
        return None
    parameters = ", ".join(sorted(written.sizes[name] for name in names))
    return f'"{text}"' if text.isidentifier() else f"lambda {parameters}: {text}"


def outputs_of(written: NumpyFunction) -> dict[str, str]:
    """Names that the op gives its results, by their names in the graph."""
    names = dict(written.outputs)
    return names if len(names) > 1 else dict.fromkeys(names, OUT)


def _function(graph: Graph, kernel: Kernel, written: NumpyFunction, *, in_pieces: bool) -> str:
    """The function that runs each launch once, on all of its items, or the only one on some."""
    outputs = outputs_of(written)
    known = {**written.inputs, **outputs, **{name: f"&{names}" for name, names in written.named.items()}}
    parameters = [
        *(f"const {TYPES[graph[name].dtype]} *{names}" for name, names in written.inputs.items()),
        *(f"{TYPES[graph[name].dtype]} *{names}" for name, names in outputs.items()),
        *(f"int64_t {names}" for names in written.sizes.values()),
        *(f"{TYPES[graph[name].dtype]} {names}" for name, names in written.named.items()),
        *(f"int64_t {place}" for place in (RANGE if in_pieces else ())),
    ]
    head = f"int32_t {written.name}({', '.join(parameters)})"
    if len(head) > WIDTH:
        lines = ",\n    ".join(parameters)
        head = f"int32_t {written.name}(\n    {lines}\n)"
    body = _body(kernel, known, written, in_pieces=in_pieces)
    return "\n".join([head, "{", *(f"    {line}" for line in body), "}"])


def _body(kernel: Kernel, mapping: dict[str, str], written: NumpyFunction, *, in_pieces: bool) -> list[str]:
    scratch = [f"scratch_{k}" for k in range(len(kernel.of(Role.SCRATCH)))]
    sources = [buffer.source for buffer in (*kernel.of(Role.INPUT), *kernel.of(Role.OUTPUT))]
    strange = next((source for source in sources if source not in mapping), None)
    if strange is not None:
        raise UnsupportedError(f"the kernel reads {strange}, which is no input of the op")
    sizes = [binding.size for binding in kernel.binding]
    unused = [f"(void){names};" for name, names in written.sizes.items() if name not in sizes]
    start = [*unused, f"const int64_t sizes[] = {{{', '.join(written.sizes[name] for name in sizes) or '0'}}};"]
    buffers = f"const void *buffers[] = {{{', '.join([*(mapping[source] for source in sources), *scratch])}}};"
    if in_pieces:
        call = "const noyau_call call = {(void *const *)buffers, sizes, 0};"
        return [*start, buffers, call, f"return {kernel.name}_run(&call, begin, end);"]
    return [
        *start,
        *(
            f"void *{name} = malloc((size_t){kernel.name}_scratch_bytes(sizes, {k}) + 1);"
            for k, name in enumerate(scratch)
        ),
        buffers,
        f"int32_t status = {' && '.join([*scratch, '1'])} ? NOYAU_OK : NOYAU_OUT_OF_MEMORY;"
        if scratch
        else "int32_t status = NOYAU_OK;",
        f"for (int32_t launch = 0; launch < {len(kernel.launches)} && status == NOYAU_OK; launch++) {{",
        "    const noyau_call call = {(void *const *)buffers, sizes, launch};",
        f"    status = {kernel.name}_run(&call, 0, {kernel.name}_extent(sizes, launch));",
        "}",
        *(f"free({name});" for name in scratch),
        "return status;",
    ]
