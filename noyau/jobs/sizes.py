"""Sizes, sweeps and shares as they are typed on a command line."""

from __future__ import annotations

import math
import re

from noyau.errors import InputError


def sizes_of(texts: list[str], option: str = "--dim") -> dict[str, list[int]]:
    """`["sequence=1,128"]` as a mapping; InputError where one is not NAME=N, NAME=N,N... with N from 0 or a sweep, or a
    name is there twice."""
    by_name = dict[str, list[int]]()
    for text in texts:
        name, _, values = text.rpartition("=")
        numbers = _sweep(values) if ":" in values else [_number(each) for each in values.split(",")]
        if not name or None in numbers or not numbers:
            forms = f"NAME=N or NAME=N,N..., with N from 0: {option} sequence=1,128, or a sweep: n=1e3:1e8:log"
            raise InputError(f"{option} {text} is not {forms}")
        if name in by_name:
            raise InputError(f"{option} {name} is given twice: give it once, as {name}=N,N for several")
        by_name[name] = [each for each in numbers if each is not None]
    return by_name


def _number(text: str) -> int | None:
    """A size: 1000, or 1e3 where that is whole; None for what is none."""
    if match := re.fullmatch(r"([0-9]{1,18})(?:[eE]\+?([0-9]{1,2}))?", text, re.ASCII):
        value = int(match[1]) * 10 ** int(match[2] or 0)
        return value if value < 10**18 else None
    return None


def _sweep(text: str) -> list[int | None]:
    """The numbers of `A:B:log` and `A:B:lin`, whole, each once: one a decade, or five, unless a count follows."""
    first, last, kind, count = (*text.split(":"), "", "")[:4] if text.count(":") in (2, 3) else ("",) * 4
    low, high = _number(first), _number(last)
    if low is None or high is None or low >= high or kind not in ("log", "lin") or (kind == "log" and not low):
        return [None]
    usual = max(2, round(math.log10(high / max(low, 1))) + 1) if kind == "log" else 5
    steps = _number(count) if text.count(":") == 3 else usual
    if steps is None or not 2 <= steps <= 1000:
        return [None]
    at = [number / (steps - 1) for number in range(steps)]
    return list(dict.fromkeys(round(low * (high / low) ** x if kind == "log" else low + (high - low) * x) for x in at))


def share_of(text: str, option: str) -> float:
    """`5%` as 0.05. InputError for what is no share, in percent, from 0 on."""
    match = re.fullmatch(r"([0-9]{1,4}(?:\.[0-9]{1,6})?)%", text, re.ASCII)
    if match is None:
        raise InputError(f"{option} {text} is no share of the time: {option} 5%")
    return float(match[1]) / 100


def size_of_each(texts: list[str], option: str = "--dim") -> dict[str, int]:
    """One number for each size. InputError for several, where only one can be meant."""
    by_name = sizes_of(texts, option)
    for name, values in by_name.items():
        if len(values) > 1:
            raise InputError(f"{option} {name} has {len(values)} numbers, and here a size has one: {option} {name}=N")
    return {name: values[0] for name, values in by_name.items()}
