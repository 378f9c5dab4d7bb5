"""Every error that a user can meet: it says what, where, and what would do."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class NoyauError(Exception):
    """The base of all errors raised on purpose by noyau."""


class UnsupportedError(NoyauError, NotImplementedError):
    """Something is asked for that a language, a strategy or a runtime does not have. `at`: whether it is so at sizes,
    where that hangs on what was asked of those of a call."""

    def __init__(self, told: str = "", at: Callable[[Mapping[str, int]], bool] | None = None) -> None:
        super().__init__(told)
        self.at = at


class SignatureError(NoyauError, TypeError):
    """A signature cannot be read, or an argument, a kernel or a parameter does not fit it."""


class GraphError(NoyauError, ValueError):
    """A graph or a kernel breaks a rule of its IR; always a defect of a front end or of a pass."""


class ModelError(NoyauError, ValueError):
    """A model file cannot be read: truncated, cyclic, hostile, or not a model at all."""


class InputError(NoyauError, ValueError):
    """The arrays or sizes that were given do not fit the model."""


class OutsideError(InputError, IndexError):
    """An index that was given is outside the axis that it looks into."""


class BuildError(NoyauError, RuntimeError):
    """No compiler was found, or the compiler refused a text."""


class DeviceError(NoyauError, RuntimeError):
    """A GPU refuses: a launch is beyond its limits, or a kernel has trapped and its context is lost."""


class OutputError(NoyauError, OSError):
    """A result cannot be written: the folder is missing, read-only or full."""

    @property
    def lacks_room(self) -> bool:
        """Whether what is in the way may go: a disk or a quota that is full."""
        return getattr(self.__cause__, "errno", None) in (errno.ENOSPC, errno.EDQUOT)


class CheckError(NoyauError, AssertionError):
    """A kernel is wrong: which one, at which cell, by how much."""


class RaisedError(CheckError, RuntimeError):
    """A kernel raised an error of its own: it is wrong, or not written for such arrays."""


class MissingExtraError(NoyauError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""
