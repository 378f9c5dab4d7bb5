"""The options of `noyau.profile`, checked, and the sizes and inputs that they give the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import numpy as np

from noyau.errors import InputError
from noyau.hosts.onnxruntime.path_ends import Between
from noyau.hosts.onnxruntime.sessions import version
from noyau.hosts.onnxruntime.size_bindings import sizes_for
from noyau.hosts.onnxruntime.source_model import SourceModel
from noyau.text import printable
from noyau.verify.input_file import load_inputs
from noyau.verify.inputs import Inputs, make_inputs

Dims = Mapping[str, int | Sequence[int]]


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """The options of `profile`. `dims` are sizes, each a number or several: the model then runs with the first of
    each, with the second of each, and so on; `inputs` an .npz file of arrays instead; `threads` of onnxruntime, 0:
    as many as it likes; `between` the ends of the only path to look at; `budget_s` for the clock, each of the sizes;
    `top` rows of a table are shown."""

    dims: Dims = field(default_factory=dict)
    inputs: str | Path | None = None
    threads: int = 1
    between: Between | None = None
    budget_s: float = 1.5
    seed: int = 0
    top: int = 12


class ProfileKeywords(TypedDict, total=False):
    """The fields of ProfileOptions, as keyword arguments of `noyau.profile`."""

    dims: Dims
    inputs: str | Path | None
    threads: int
    between: Between | None
    budget_s: float
    seed: int
    top: int


def check(wishes: ProfileOptions) -> None:
    """InputError for a wish that means nothing; MissingExtraError without onnxruntime."""
    if wishes.threads < 0 or wishes.budget_s < 0:
        raise InputError(f"threads={wishes.threads} and budget_s={wishes.budget_s} must not be negative")
    if wishes.top < 1:
        raise InputError(f"top={wishes.top} is no number of rows: give 1 or more")
    version()


def bindings(dims: Dims) -> list[dict[str, int]]:
    """The sizes of each run: of each size the first value, then the second... InputError where some have several
    values and others another number of them."""
    lists = {name: [value] if isinstance(value, int) else list(value) for name, value in dims.items()}
    counts = {name: len(values) for name, values in lists.items() if len(values) != 1}
    if len(set(counts.values())) > 1 or 0 in counts.values():
        sizes = ", ".join(f"{printable(name)} has {count}" for name, count in counts.items())
        raise InputError(f"sizes need one value each, or as many as each other: {sizes}")
    runs = max(counts.values(), default=1)
    return [{name: values[k if len(values) > 1 else 0] for name, values in lists.items()} for k in range(runs)]


def inputs_for(original: SourceModel, dims: Mapping[str, int], wishes: ProfileOptions) -> Inputs:
    """Arrays for every input of the model. InputError where one cannot be made up, or does not fit."""
    imported, names = original.imported, frozenset(original.imported.initializers)
    if wishes.inputs is None:
        sizes = sizes_for(imported, dims)
        return make_inputs(imported.graph, sizes, np.random.default_rng(wishes.seed), without=names)
    if dims:
        raise InputError(f"{wishes.inputs} gives every size: leave out --dim {printable(min(dims))}=N, or the arrays")
    return load_inputs(Path(wishes.inputs), imported.graph, without=names)
