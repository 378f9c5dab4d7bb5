"""Sizes that a model runs with, found by trying, where the usual ones do not fit what it is made for."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

from noyau.errors import InputError
from noyau.hosts.onnxruntime.inputs import ModelInputs
from noyau.hosts.onnxruntime.size_bindings import Sizes, fit_sizes, graph_names, leading, model_names, spell
from noyau.text import printable

if TYPE_CHECKING:
    from noyau.frontends.onnx import ImportedModel

# Lengths of windows of sound, edges of images and heights of lines that models are made for; then small ones.
NUMBERS = (64, 32, 48, 256, 512, 224, 640, 96, 160, 1024, 1536, 16, 8, 4, 2, 1)
MOST_TRIES, MOST_S, SHOWN = 80, 20.0, 6
Run = TypeVar("Run")


def first_that_runs(
    imported: ImportedModel,
    feeds: ModelInputs,
    make: Callable[[Mapping[str, int]], ModelInputs],
    run: Callable[[ModelInputs], Run],
    fixed: Collection[str] = (),
) -> tuple[ModelInputs, Run]:
    """The inputs, or those that `make` makes up for other sizes by the model's names, the first that `run` takes; sizes
    in `fixed` stay. InputError, which lists what was tried, where it takes none."""
    try:
        return feeds, run(feeds)
    except InputError as error:
        fault = error
    tried, end_s = list[str](), time.monotonic() + MOST_S
    for sizes in islice(other_sizes(imported, feeds.full.sizes, fixed), MOST_TRIES):
        if time.monotonic() > end_s:
            break
        named = model_names(imported, sizes)
        tried.append(spell(named))
        try:
            others = make(named)
            return others, run(others)
        except InputError:
            continue
    names = sorted(map(printable, model_names(imported, feeds.full.sizes)))
    more = f" and {len(tried) - SHOWN} more" if len(tried) > SHOWN else ""
    listed = f"; its open sizes are {', '.join(names)}" if names else ""
    listed += f", of which these were tried in vain: {'; '.join(tried[:SHOWN])}{more}" if tried else ""
    raise InputError(f"{fault}{listed}") from fault


def other_sizes(imported: ImportedModel, usual: Sizes, fixed: Collection[str] = ()) -> Iterator[dict[str, int]]:
    """Sizes to try: all that may move at one number, the leading ones as they are; then each at one, the others at 1 or
    as they are; then the leading ones too."""
    kept = set(graph_names(imported, fixed))
    lead = leading(imported) - kept
    free = [name for name in usual if name not in kept | lead]
    together = ({**usual, **dict.fromkeys(free, number)} for number in NUMBERS)
    least = {**usual, **dict.fromkeys(free, 1)}
    alone = ({**rest, name: k} for rest in (least, usual) for name in free if len(free) > 1 for k in NUMBERS)
    everything = ({**usual, **dict.fromkeys([*free, *lead], number)} for number in NUMBERS)
    distinct = [dict(usual)]
    for sizes in chain(together, alone, everything):
        fitted = fit_sizes(sizes, imported, fixed)
        if fitted not in distinct:
            distinct.append(fitted)
            yield fitted
