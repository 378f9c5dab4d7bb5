"""The identifiers of a text while it is printed: none twice where both can be seen, none a word or a macro of C.

What other languages reserve besides, their own files say."""

from __future__ import annotations

import keyword
import re
from collections.abc import Container, Iterator
from contextlib import contextmanager
from itertools import chain, count

from noyau.compiler.lowering.names import identifier
from noyau.errors import GraphError
from noyau.ir.loops import Kernel

# Beyond those that identifier() knows: words of C23, what the text itself calls its own names, and what it calls.
RESERVED = frozenset(
    """alignas alignof bitand bitor bool complex compl constexpr defined errno false free imaginary isfinite isinf isnan
    linux malloc near far noreturn not nullptr or signbit static_assert stderr stdin stdout thread_local true typeof
    unix wchar_t xor dims extent fit index launch left output shape shapes""".split()
)

OWN = ("lane", "block", "length")  # short names for what schedules make
Key = tuple[str, str]


class Scopes:
    """Names of a kernel to identifiers. What a block names is free again after it.

    Values (buffers, memory, Lets), indices (`#i0`) and sizes are apart: a buffer and a size may share a name.
    `anonymous`: numbers in the order in which the names come, so that kernels that are equal up to names have one
    text. `used` are the names that the text has asked for."""

    def __init__(self, kernel: Kernel, *, anonymous: bool = False) -> None:
        self.anonymous, self.count = anonymous, 0
        self.blocks: list[dict[Key, str]] = [{}]
        self.used: set[Key] = set()
        for buffer in kernel.buffers:
            self.bind(buffer.name, buffer.source or buffer.name)
        for binding in kernel.binding:
            self.blocks[0]["size", binding.size] = self.fresh(fitting(binding.size))

    @contextmanager
    def block(self) -> Iterator[None]:
        """A scope: names that are bound within are forgotten after it."""
        self.blocks.append({})
        yield
        self.blocks.pop()

    def bind(self, name: str, wish: str | None = None) -> str:
        """An identifier for a name of the kernel, like `wish` where that is free."""
        text = self.fresh(wish if wish in OWN else fitting(name.removeprefix("#") if wish is None else wish))
        self.blocks[-1]["index" if name.startswith("#") else "value", name] = text
        return text

    def fresh(self, stem: str) -> str:
        """An identifier that nothing in sight has; it is taken until the block ends."""
        if self.anonymous:
            self.count += 1
            stem = f"n{self.count}"
        used = {text for block in self.blocks for text in block.values()}
        names = chain([stem], (f"{stem}_{number}" for number in count(2)))
        name = next(each for each in names if each not in used and self.fits(each))
        self.blocks[-1]["taken", name] = name
        return name

    def fits(self, name: str) -> bool:
        """Whether a language can have a name that nothing in sight has."""
        return True

    def value(self, name: str) -> str:
        """The identifier of a buffer, of memory or of a Let."""
        return self._find(("value", name))

    def atom(self, name: str) -> str:
        """The identifier of a size or an index."""
        return self._find(("index" if name.startswith("#") else "size", name))

    def peek(self, name: str) -> str:
        """The identifier of a size or an index, for a comment: it is not used."""
        before = set(self.used)
        text = self.atom(name)
        self.used = before
        return text

    def _find(self, key: Key) -> str:
        self.used.add(key)
        for block in reversed(self.blocks):
            if key in block:
                return block[key]
        raise GraphError(f"nothing here binds the {key[0]} {key[1]}")


def wish_of(variable: str) -> str | None:
    """The short name of an index that a schedule made, or None."""
    if variable.endswith("_length"):
        return "length"
    return next((own for own in OWN if variable.startswith(f"#{own}")), None)


def refuse_name(kernel: Kernel, reserved: Container[str]) -> None:
    """GraphError where the name of a kernel cannot be that of a Python function."""
    plain = re.fullmatch(r"(?!noyau)[a-z]\w*", kernel.name, re.ASCII | re.IGNORECASE)
    if not plain or keyword.iskeyword(kernel.name) or kernel.name in reserved:
        problem = f"{kernel.name!r} cannot be the name of a Python function, or the text needs it for itself"
        raise GraphError(f"{problem}: give letters, digits and _")


def fitting(name: str) -> str:
    """The name as an identifier of C; one in capitals, which could be a macro, in small letters."""
    if len(name) == 1 and name.isascii() and name.isalpha():
        return name
    text = identifier(name)
    text = identifier(text.lower()) if re.fullmatch(r"[A-Z][A-Z0-9_]{2,}", text) else text
    return f"v_{text}" if text in RESERVED else text
