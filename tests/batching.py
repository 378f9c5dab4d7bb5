"""Many kernels in one C text, so that thousands are built in a minute."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.builders.cc import Options, compile_library
from noyau.builders.native import Native
from noyau.ir.loops import Kernel
from noyau.languages.c import together

QUICK = Options(extra=("-O1",))  # the texts are the same as for -O3, and compile in a third of the time


def build_many(kernels: Sequence[Kernel], options: Options = QUICK) -> list[Native]:
    """The kernels, built as one library; their names differ. BuildError where the compiler refuses the text."""
    library = compile_library([together(kernels)], options)
    return [Native(library, f"{kernel.name}_kernel") for kernel in kernels]
