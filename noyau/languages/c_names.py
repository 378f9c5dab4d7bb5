"""The identifiers of a kernel's text: buffers, values, sizes and loop variables, none twice, none a word of C."""

from __future__ import annotations

from collections.abc import Mapping

from noyau.ir.loops import Alloc, Kernel, Let, Loop
from noyau.ir.walk import every_statement
from noyau.lowering.names import Names


class Numbers(Names):
    """Names that tell nothing but their order."""

    def fresh(self, name: str) -> str:
        return super().fresh(f"n{len(self._taken)}")


def names_for(kernel: Kernel, *, anonymous: bool = False) -> Mapping[str, str]:
    """An identifier for each name in a kernel; `#i0` becomes `i0` where nothing else is called so. Anonymous ones are
    numbers in the order in which the names come: kernels that are equal up to names then have one text."""
    given: dict[str, str] = {}
    names: Names = Numbers() if anonymous else Names()
    for buffer in kernel.buffers:
        given[buffer.name] = names.fresh(buffer.name)
    for binding in kernel.binding:
        given.setdefault(binding.size, "")
    sizes = [size for size, text in given.items() if not text]
    for size in sizes:
        given[size] = names.fresh(size)
    for launch in kernel.launches:
        for statement in every_statement(launch.body):
            match statement:
                case Let(name) | Alloc(name) | Loop(var=name):
                    if name not in given:
                        given[name] = names.fresh(name.removeprefix("#"))
                case _:
                    pass
    return given


