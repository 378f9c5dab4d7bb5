"""The table of a kernel of language `cuda` for a runtime in C (noyau_grid.h), its code in it: a text in C, which needs
nothing of CUDA to compile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files

from noyau.codegen.c.interface import KernelTable
from noyau.codegen.c.printer import CPrinter, text_of
from noyau.codegen.cuda.printer import block_of
from noyau.errors import UnsupportedError
from noyau.ir.loops import Kernel

_LINE = 32  # bytes of code on a line
_WIDE = 90  # sm_90 is the first architecture with clusters of blocks


def grid_text(kernel: Kernel, codes: Mapping[str, bytes]) -> str:
    """The text of `NAME_grid` of a scheduled kernel; `codes`: machine code by its architecture ("sm_90"), PTX by what
    it was compiled for ("compute_90")."""
    printer, name = CPrinter(kernel), kernel.name
    table = KernelTable(kernel, printer.names, printer.expressions)
    blocks = ", ".join(f"{{{b.threads}, {b.rows}, {b.blocks}}}" for b in map(block_of, kernel.launches))
    lines = ["static const noyau_code", f"    {name}_codes[] = {{", *_codes(codes), "};"]
    printer.bodies += [
        files("noyau.codegen.cuda").joinpath("noyau_grid.h").read_text("ascii"),
        *table.places(),
        table.ends(),
        "\n".join([f"static const noyau_block {name}_blocks[] = {{{blocks}}};", *lines]),
        f'__attribute__((visibility("hidden"))) const noyau_grid {name}_grid = {{\n'
        f"    {table.entries('0', '0')},\n    {name}_blocks, {name}_codes, {len(codes)},\n}};",
    ]
    return text_of([printer])


def require_architectures(kernel: Kernel, architectures: Sequence[str]) -> None:
    """UnsupportedError where one of some architectures lacks what a scheduled kernel runs on."""
    lesser = [each for each in architectures if int(each.partition("_")[2]) < _WIDE]
    if lesser and any(block_of(launch).blocks > 1 for launch in kernel.launches):
        raise UnsupportedError(f"it runs on clusters of blocks, which {lesser[0]} has not; --target sm_90 has")


def _codes(codes: Mapping[str, bytes]) -> Iterator[str]:
    for architecture, code in codes.items():
        kind, _, number = architecture.partition("_")
        yield f"        {{{number}, {int(kind == 'compute')},"
        for at in range(0, len(code), _LINE):  # three digits each, so that no digit behind is taken for one of them
            digits = "\\".join(f"{byte:03o}" for byte in code[at : at + _LINE])
            yield f'         "\\{digits}"'
        yield "        },"
