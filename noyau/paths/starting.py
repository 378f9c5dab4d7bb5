"""The kernel that noyau generates for a path, as a plain C function: right from the start, and ready to be changed."""

from __future__ import annotations

import re

from noyau.errors import UnsupportedError
from noyau.ir.graph import Graph
from noyau.ir.loops import Buffer, Kernel, Role
from noyau.languages import c
from noyau.languages.c_tables import TYPES
from noyau.languages.numpy_text import Written
from noyau.lowering.nest import lower
from noyau.passes.normal import normalise
from noyau.schedules.choosing import schedule

OUT = "out"  # the only result of an op bears no name, and is called so
_WIDTH, _EACH = 110, ",\n    "  # letters of a line; what stands between parameters that have a line each
_HEAD = """The kernel that noyau generates for this path: the last function. Change it, or write another one.
Its parameters bear the names of the op's inputs, outputs, sizes and constants; arrays are packed, in C order."""


def starting_text(graph: Graph, written: Written) -> str:
    """The C text of a function `written.name` that computes the graph; what it is given is called as in `written`.

    UnsupportedError, with the reason, where the path does not become one kernel."""
    kernel = schedule(lower(normalise(graph), f"{written.name}_generated"))
    text, _, _ = c.source(kernel, _HEAD).partition(f"static const int32_t {kernel.name}_dtypes")
    asked = re.compile(rf"static \w+ {kernel.name}_(?:bind|shape|item_bytes)\(.*?\n\}}\n\n", re.DOTALL)
    return f"{asked.sub('', text)}{_function(graph, kernel, written)}\n"


def outputs_of(written: Written) -> dict[str, str]:
    """What the op calls its results, by their names in the graph."""
    names = dict(written.outputs)
    return names if len(names) > 1 else dict.fromkeys(names, OUT)


def _function(graph: Graph, kernel: Kernel, written: Written) -> str:
    """The function that runs each launch once, on all of its items."""
    outputs = outputs_of(written)
    known = {**written.inputs, **outputs, **{name: f"&{called}" for name, called in written.named.items()}}
    parameters = [
        *(f"const {TYPES[graph[name].dtype]} *{called}" for name, called in written.inputs.items()),
        *(f"{TYPES[graph[name].dtype]} *{called}" for name, called in outputs.items()),
        *(f"int64_t {called}" for called in written.sizes.values()),
        *(f"{TYPES[graph[name].dtype]} {called}" for name, called in written.named.items()),
    ]
    head = f"int32_t {written.name}({', '.join(parameters)})"
    if len(head) > _WIDTH:
        head = f"int32_t {written.name}(\n    {_EACH.join(parameters)}\n)"
    return "\n".join([head, "{", *(f"    {line}" for line in _body(kernel, known, written)), "}"])


def _body(kernel: Kernel, known: dict[str, str], written: Written) -> list[str]:
    scratch = [f"scratch_{k}" for k in range(len(kernel.of(Role.SCRATCH)))]
    held = [_pointer(buffer, known) for buffer in (*kernel.of(Role.INPUT), *kernel.of(Role.OUTPUT))]
    sizes = ", ".join(written.sizes[binding.size] for binding in kernel.binding) or "0"
    unused = [f"(void){called};" for name, called in written.sizes.items() if name not in _bound(kernel)]
    return [
        *unused,
        f"const int64_t sizes[] = {{{sizes}}};",
        *(
            f"void *{name} = malloc((size_t){kernel.name}_scratch_bytes(sizes, {k}) + 1);"
            for k, name in enumerate(scratch)
        ),
        f"const void *buffers[] = {{{', '.join([*held, *scratch])}}};",
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


def _pointer(buffer: Buffer, known: dict[str, str]) -> str:
    if buffer.source not in known:
        raise UnsupportedError(f"the kernel reads {buffer.source}, which is no input of the op")
    return known[buffer.source]


def _bound(kernel: Kernel) -> set[str]:
    return {binding.size for binding in kernel.binding}
