"""Language `triton`: kernels that Triton compiles for GPUs, and a Python function that launches them on torch tensors.

The text stands alone: it needs torch and triton to run, and nothing to be printed.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence

from noyau.codegen.numba.printer import comment_text
from noyau.codegen.triton.expressions import Used, merge_function
from noyau.codegen.triton.host_function import HOST, HostFunction
from noyau.codegen.triton.launch import TritonPrinter
from noyau.codegen.triton.row_alignment import AGAIN, INSIDE, LED, OF_ROW
from noyau.codegen.triton.tables import QUOTIENT, RESERVED, SCALE, own_function
from noyau.errors import GraphError
from noyau.ir.loops import Kernel


def source(kernel: Kernel, comment: str = "") -> str:
    """The text of a kernel, scheduled by `grid.on_gpu`: a comment, the functions it uses, its launches, and the
    function that launches them, of the inputs, which returns the outputs."""
    return together([kernel], comment)


def together(kernels: Sequence[Kernel], comment: str = "") -> str:
    """One text of several kernels, whose names differ. GraphError where a name cannot be that of a function."""
    used, bodies = Used(), list[str]()
    for kernel in kernels:
        plain = re.fullmatch(r"(?!noyau)[a-z]\w*", kernel.name, re.ASCII | re.IGNORECASE)
        if not plain or keyword.iskeyword(kernel.name) or kernel.name in RESERVED:
            raise GraphError(
                f"{kernel.name!r} cannot be the name of a Python function, or the text needs it for itself: "
                "give letters, digits and _"
            )
        printers = [TritonPrinter(kernel, position, launch, used) for position, launch in enumerate(kernel.launches)]
        bodies += [printer.text() for printer in printers]
        bodies.append(HostFunction(kernel, printers, used).text())
    merges = [merge_function(monoid, dtype, used, loose) for monoid, dtype, loose in sorted(used.merges, key=_named)]
    own = [own_function(function, dtype, loose) for function, dtype, loose in sorted(used.functions, key=_named)]
    hosts = [text for name, text in HOST.items() if name in used.host]
    needed = (
        (SCALE, used.scales),
        (QUOTIENT, used.divides),
        (INSIDE, used.inside),
        (LED, used.led),
        (OF_ROW, used.ends),
        (AGAIN, used.again),
    )
    rows = [text for text, wanted in needed if wanted]
    below = "\n\n\n".join([*own, *rows, *merges, *hosts, *bodies])
    imports = "import torch\nimport triton\nimport triton.language as tl"
    if "libdevice." in below:
        imports += "\nfrom triton.language.extra import libdevice"
    head = "\n\n".join(part for part in (comment_text(comment), imports) if part)
    return f"{head}\n\n\n{below}\n" if below else f"{head}\n"


def _named(key: tuple[str, object, bool]) -> tuple[str, str, bool]:
    return key[0], str(key[1]), key[2]
