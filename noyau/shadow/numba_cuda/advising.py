"""What is said of a launch that was run: how it was launched, and how many of its threads had nothing to do."""

from __future__ import annotations

import inspect
import linecache
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from noyau.advice.launches import Launch as Launched
from noyau.advice.launches import advise
from noyau.advice.remarks import Remark
from noyau.checking.findings import Finding
from noyau.handwritten.buffers import GPU
from noyau.handwritten.kernels import python_function
from noyau.shadow.numba_cuda.launching import LANGUAGE, Launch

_ASKED = "multiprocessor_count"  # in a script: it sizes its grids by the machine, which is a small one here


def advised(
    launch: Launch, function: Callable[..., Any], op: str, kernel: str, place: str, size: str, *, is_whole: bool
) -> list[Finding]:
    """Warnings on a launch, at `place`. `is_whole`: its sizes are those that are meant, as a script's own; else only
    what its threads did is judged."""
    file, _, line = place.rpartition(":")
    shapes = [launch.recorder.memories[number].shape for number in launch.arrays.values()]
    told = Launched(
        launch.configuration.grid,
        launch.configuration.block,
        max(shapes, key=math.prod, default=()),
        _source(function),
        launch.idle,
        0 if not is_whole or _ASKED in "".join(linecache.getlines(file)).lower() else GPU.sm_count,
    )
    said = advise(told) if is_whole else [each for each in advise(told) if "touch nothing" in each[0]]
    made = [Remark("launch", file, int(line) if line.isdigit() else 0, *each, kernel, size) for each in said]
    return [each.finding(op, kernel, LANGUAGE) for each in made if not each.is_allowed]


def _source(function: Callable[..., Any]) -> str:
    with suppress(OSError, TypeError):
        return inspect.getsource(python_function(function))
    return ""
