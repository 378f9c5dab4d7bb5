"""How many threads a call of a kernel may have. Results do not depend on it, to the bit."""

from __future__ import annotations

from noyau.errors import InputError
from noyau.runtimes.numpy.library import library


def threads(count: int | None = None) -> int:
    """How many threads a call has from now on, its own among them; without a count, those that it has now.

    At first, as many as the process may use processors. One: no thread of noyau's does anything. InputError for less.
    """
    made = library()
    if count is not None:
        if type(count) is not int or count < 1:
            raise InputError(f"a call runs on at least 1 thread, and threads({count!r}) asks for something else")
        if made is not None:
            made.loaded.noyau_threads_limit(min(count, 1 << 20))
    return 1 if made is None else int(made.loaded.noyau_threads_wanted())
