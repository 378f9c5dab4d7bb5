"""Many kernels in one C text, so that thousands are built in a minute."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from noyau.builders.cc import Options, compile_library
from noyau.builders.native import Native
from noyau.ir.loops import Kernel
from noyau.languages import cmath
from noyau.languages.c import Printer
from noyau.languages.c_interface import interface
from noyau.languages.c_tables import integer_function

QUICK = Options(extra=("-O1",))  # the texts are the same as for -O3, and compile in a third of the time


def build_many(kernels: Sequence[Kernel], options: Options = QUICK) -> list[Native]:
    """The kernels, built as one library; their names differ. BuildError where the compiler refuses the text."""
    library = compile_library([source_of(kernels)], options)
    return [Native(library, f"{kernel.name}_kernel") for kernel in kernels]


def source_of(kernels: Sequence[Kernel]) -> str:
    """One text: the ABI, every scalar function that one of the kernels uses, then the kernels."""
    bodies: list[str] = []
    functions: set[str] = set()
    integers: set[tuple[str, str]] = set()
    for kernel in kernels:
        printer = Printer(kernel)
        bodies += [printer.launch(at, launch) for at, launch in enumerate(kernel.launches)]
        bodies.append(interface(kernel, printer.names))
        functions |= printer.functions
        integers |= printer.integers
    parts = [
        files("noyau.languages").joinpath("noyau.h").read_text(),
        "#include <math.h>\n#include <stdbool.h>\n#include <stdlib.h>\n#include <string.h>",
        cmath.text(sorted(functions)) if functions else "",
        *(integer_function(*key) for key in sorted(integers)),
        *bodies,
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"
