"""What the checks of a file need whatever they find, made before a copy of this process takes its share of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from threading import Thread

from noyau.checking.generated import begin
from noyau.errors import NoyauError
from noyau.shadow import engine
from noyau.shadow.c import SUFFIXES, building


def prepare(languages: Collection[str]) -> None:
    """Load Numba, and meanwhile let a compiler build what watches its kernels, and those by hand in C, C++ or CUDA C++,
    where these are among the `languages`. Both are done then, so that a copy of this process finds no thread half-way,
    and none of it is done twice."""
    of_c = {language != "c" for language in languages if language in SUFFIXES.values()}
    jobs = *(partial(building.runtime, in_cpp=in_cpp) for in_cpp in sorted(of_c)), engine.library
    thread = Thread(target=_do, args=jobs, name="noyau-ahead", daemon=True)
    thread.start()
    try:
        begin()
    finally:
        thread.join()


def _do(*jobs: Callable[[], object]) -> None:
    """Why something is not built is told of the first kernel that needs it."""
    for job in jobs:
        with suppress(NoyauError):
            job()
