"""A kernel of Triton with every access watched: where Triton interprets, and else in a process in which it does."""

from __future__ import annotations

from noyau.handwritten.triton_calls import is_interpreted
from noyau.shadow.cases import Case
from noyau.shadow.mapping import Map
from noyau.shadow.records import Watched
from noyau.shadow.triton.apart import watch_apart
from noyau.shadow.triton.running import watch_here


def watch(case: Case, maps: list[Map] | None = None) -> Watched:
    """The kernel on its arrays, watched, on tensors of the CPU, whether there is a GPU or not; where Triton
    interprets, a map of it is put into `maps`.

    UnsupportedError where it cannot be; CheckError where it raises, crashes or does not end."""
    return watch_here(case, maps) if is_interpreted(case.kernel.function) else watch_apart(case)
