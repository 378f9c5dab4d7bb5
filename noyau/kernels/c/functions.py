"""`FILE.c::FUNCTION`: a function of a text in C, C++ or CUDA C++ that is on no op, by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noyau.codegen.language import BY_SUFFIX
from noyau.errors import InputError
from noyau.kernels.c.prototypes import Prototype, prototype_of
from noyau.kernels.c.syntax import plain_name, syntax
from noyau.kernels.user_kernel import UserKernel


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
        return plain_name(self.entry)

    def prototype(self) -> Prototype:
        """The parameters and the result of a function. SignatureError where its text defines no such function."""
        return prototype_of(self.text, self.name, str(self.path), self.language)

    @property
    def line(self) -> int:
        """The line that it is defined on; 1 where it is not."""
        functions = syntax(self.text, self.language).functions
        return next((each.line for each in functions if each.name == self.name), 1)


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


def parameters(function: TextFunction) -> tuple[str, ...]:
    """The names of what it takes. SignatureError where its text defines no such function."""
    return tuple(each.name for each in function.prototype().parameters)


def prototype(kernel: UserKernel) -> Prototype:
    """The parameters of a kernel in C, C++ or CUDA C++."""
    return kernel.prototype or prototype_of(kernel.text, plain_name(kernel.entry), kernel.called, kernel.language)
