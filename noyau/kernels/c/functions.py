"""`FILE.c::FUNCTION`: a function of a text in C, C++ or CUDA C++ that is on no op, by name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noyau.codegen.language import BY_SUFFIX
from noyau.errors import InputError
from noyau.kernels.c.prototypes import Prototype, prototype_of
from noyau.kernels.user_kernel import HandKernel

_SKIPPED = re.compile(
    r"__launch_bounds__\s*\([^)]*\)|\b__(?:global|device|host|forceinline|noinline)__\b|\btemplate\s*<[^>]*>"
)


@dataclass(frozen=True, slots=True)
class TextFunction:
    """A function of a text; `entry`: its name, with template arguments where it has any."""

    path: Path
    entry: str
    text: str

    @property
    def language(self) -> str:
        return BY_SUFFIX[self.path.suffix].name

    @property
    def name(self) -> str:
        return re.sub(r"<.*>$", "", self.entry)

    @property
    def line(self) -> int:
        """Where its name is first followed by parentheses; 1 where it is not."""
        found = re.search(rf"\b{re.escape(self.name)}\s*\(", self.text)
        return self.text.count("\n", 0, found.start()) + 1 if found else 1


def is_named(target: Any) -> bool:
    """Whether something is the name of such a function."""
    return isinstance(target, str) and "::" in target and Path(target.partition("::")[0]).suffix in BY_SUFFIX


def text_function(target: str) -> TextFunction:
    """The function of that name. InputError where there is no such file."""
    file, _, entry = target.partition("::")
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}; give FILE.c::FUNCTION") from None
    return TextFunction(Path(file), entry, text)


def prototype_in(text: str, entry: str, called: str) -> Prototype:
    """The parameters of a function of a text. SignatureError where it defines none of this name."""
    plain = _SKIPPED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return prototype_of(plain, re.sub(r"<.*>$", "", entry), called)


def parameters(function: TextFunction) -> tuple[str, ...]:
    """The names of what it takes. SignatureError where its text defines no such function."""
    return tuple(each.name for each in prototype_in(function.text, function.entry, str(function.path)).parameters)


def prototype(kernel: HandKernel) -> Prototype:
    """The parameters of a kernel in C, C++ or CUDA C++."""
    return kernel.prototype or prototype_in(kernel.text, kernel.entry, kernel.called)
