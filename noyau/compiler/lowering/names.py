"""Names of a model, fit for source text: short, of letters and digits, and never a reserved word of a language."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

_WORDS = frozenset(
    """auto bool break case char complex const continue default do double else enum extern false float for goto half if
    inline int long register restrict return short signed sizeof static struct switch true typedef union unsigned void
    volatile while asm typeof main int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t
    begin end item call status sizes buffers tl np cuda triton njit prange exp log sin cos tan tanh erf pow sqrt
    i j k l m r q block lane y0 y1 j0 j1 jn yn gamma signgam""".split()
) | frozenset(keyword.kwlist)


class Names:
    """Hands out one identifier for each name, never the same twice; none has a dot, as `x.turned` of schedules has."""

    def __init__(self, first: Iterable[str] = ()) -> None:
        self._taken: set[str] = set()
        self._names: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        for name in first:
            self.of(name)

    def copy(self) -> Names:
        """Names that avoid all identifiers that these have handed out."""
        names = Names()
        names._taken = set(self._taken)
        return names

    def of(self, name: str) -> str:
        """The identifier of a name, the same at each call."""
        if name not in self._names:
            self._names[name] = self.fresh(name)
        return self._names[name]

    def fresh(self, name: str) -> str:
        """An identifier like the name, not yet handed out."""
        stem = identifier(name)
        candidate, count = stem, self._counts.get(stem, 1)
        while candidate in self._taken:
            count += 1
            candidate = f"{stem}_{count}"
        self._taken.add(candidate)
        self._counts[stem] = count
        return candidate


def identifier(name: str) -> str:
    """The name cut down to at most 40 letters, digits and underscores: of a path, its last parts that fit."""
    clean = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
    if len(clean) > 40:
        clean = clean[-40:].split("_", 1)[-1] if "_" in clean[-40:] else clean[-40:]
    if not clean or clean[0].isdigit() or clean in _WORDS or clean.lower().startswith("noyau"):
        clean = f"v_{clean}" if clean else "v"
    return clean
