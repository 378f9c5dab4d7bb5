"""Who writes which cell in the kernels of an op that are written by hand, on a small call."""

from __future__ import annotations

from typing import Any

from noyau.checking.attempts import usual_case
from noyau.errors import NoyauError
from noyau.ops import Op
from noyau.shadow.cases import Case
from noyau.shadow.mapping import Map
from noyau.shadow.watching import watch

_APART = "Triton compiles here; TRITON_INTERPRET=1 in the environment has it interpret, which a map needs"


def maps_of(op: Op[..., Any]) -> list[Map]:
    """A map of a call of each kernel; of one that cannot be watched, or that is watched in another process, why."""
    maps: list[Map] = []
    for kernel in op.kernels.values():
        made: list[Map] = []
        try:
            instance, arrays, size = usual_case(op)
            watch(Case(kernel, instance, arrays, {}, size), made)
        except NoyauError as error:
            made = [Map(kernel.called, "", "", {}, (), (str(error),))]
        if not made and kernel.language == "triton":
            made = [Map(kernel.called, "", "", {}, (), (_APART,))]
        maps += made
    return maps
