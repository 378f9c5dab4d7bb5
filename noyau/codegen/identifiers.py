"""The identifiers of a text while it is printed: unique among those in scope, and no keyword or macro of C.

Words that other languages reserve besides are in their own modules."""

import keyword
import re
from collections.abc import Container, Iterator
from contextlib import contextmanager
from itertools import chain, count

from noyau.compiler.lowering.names import identifier
from noyau.errors import GraphError
from noyau.ir.loops import Kernel

# Beside the words of identifier(): keywords of C23, names that the text itself defines, and functions that it calls.
RESERVED = frozenset(
    """alignas alignof bitand bitor bool complex compl constexpr defined errno false free imaginary isfinite isinf isnan
    linux malloc near far noreturn not nullptr or signbit static_assert stderr stdin stdout thread_local true typeof
    unix wchar_t xor dims extent fit index launch left output shape shapes""".split()
)

OWN = ("lane", "block", "length")  # short names for variables of schedules
Key = tuple[str, str]


class Scopes:
    """The map from names of a kernel to identifiers, with block scopes: an identifier is free again after its block.

    Values (buffers, memory, Lets), indices (`#i0`) and sizes are separate: a buffer and a size may share a name.
    `anonymous`: identifiers are numbered in order, so that kernels that are equal up to names have the same text.
    `used`: the names that the text refers to."""

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
        """A block scope, at whose end its names are unbound."""
        self.blocks.append({})
        yield
        self.blocks.pop()

    def bind(self, name: str, wish: str | None = None) -> str:
        """Bind a name of the kernel to an identifier, which resembles `wish`; returns the identifier."""
        text = self.fresh(wish if wish in OWN else fitting(name.removeprefix("#") if wish is None else wish))
        self.blocks[-1]["index" if name.startswith("#") else "value", name] = text
        return text

    def fresh(self, stem: str) -> str:
        """An identifier that is unused in this scope; it is taken until the block ends."""
        if self.anonymous:
            self.count += 1
            stem = f"n{self.count}"
        used = {text for block in self.blocks for text in block.values()}
        names = chain([stem], (f"{stem}_{number}" for number in count(2)))
        name = next(each for each in names if each not in used and self.fits(each))
        self.blocks[-1]["taken", name] = name
        return name

    def fits(self, name: str) -> bool:
        """Whether a language accepts an unused name."""
        return True

    def value(self, name: str) -> str:
        """The identifier of a buffer, an allocation or a Let."""
        return self._find(("value", name))

    def atom(self, name: str) -> str:
        """The identifier of a size or an index."""
        return self._find(("index" if name.startswith("#") else "size", name))

    def peek(self, name: str) -> str:
        """The identifier of a size or an index for a comment, which does not count as a use."""
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
    """The short name of a schedule's index or length, or None."""
    if variable.endswith("_length"):
        return "length"
    return next((own for own in OWN if variable.startswith(f"#{own}")), None)


def refuse_name(kernel: Kernel, reserved: Container[str]) -> None:
    """GraphError where the name of a kernel cannot be the name of a Python function."""
    plain = re.fullmatch(r"(?!noyau)[a-z]\w*", kernel.name, re.ASCII | re.IGNORECASE)
    if not plain or keyword.iskeyword(kernel.name) or kernel.name in reserved:
        problem = f"{kernel.name!r} cannot be the name of a Python function, or the text needs it for itself"
        raise GraphError(f"{problem}: give letters, digits and _")


def fitting(name: str) -> str:
    """The name as a C identifier; in lower case if it is all capitals, which could be a macro."""
    if len(name) == 1 and name.isascii() and name.isalpha():
        return name
    text = identifier(name)
    text = identifier(text.lower()) if re.fullmatch(r"[A-Z][A-Z0-9_]{2,}", text) else text
    return f"v_{text}" if text in RESERVED else text
