"""One's own kernel tried in a process of its own, before anything else is done with it: it may crash, hang, or write
where it should not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from noyau.builders import cc
from noyau.checking.adversarial import cases
from noyau.checking.values import Case
from noyau.errors import InputError, NoyauError
from noyau.handwritten.isolation import Isolated
from noyau.judging.kernels import Judged, captured_cases
from noyau.seeing import Seen

PATIENCE_S = 20.0  # for one call


def tried(judged: Judged, seen: Seen, options: cc.Options, seed: int) -> Judged:
    """The kernel; with the reason where it crashes, hangs, or touches what it may not on one of the inputs that its
    certificate has. One that noyau generated is not tried."""
    if judged.reason or not judged.planned.by_hand:
        return judged
    planned = judged.planned
    library = cc.compile_library([planned.text], options)
    with Isolated(library, f"{planned.operator}_kernel", planned.operator, PATIENCE_S) as kernel:
        for case in _cases(judged, seen, seed):
            try:
                kernel.call_guarded(*case.inputs)
            except InputError:  # whether it must refuse these is the certificate's to say
                continue
            except NoyauError as fault:
                return replace(judged, reason=f"{fault} ({case.label})")
    return judged


def _cases(judged: Judged, seen: Seen, seed: int) -> Iterator[Case]:
    graph = judged.planned.groups[0].original
    yield from captured_cases(judged.planned, seen)[0]
    yield from cases(graph, seen.sizes_of(graph), np.random.default_rng(seed))
