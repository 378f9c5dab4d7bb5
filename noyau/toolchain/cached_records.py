"""Facts that hold until something changes, as JSON in the disk cache: one record a key."""

from __future__ import annotations

import contextlib
import datetime
import json
from pathlib import Path
from typing import Any

from noyau.toolchain import cache as toolchain_cache

_SUFFIX = ".json"
OLDEST_DAYS = 30


def today() -> str:
    """The day, as records have it."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def is_recent(day: str) -> bool:
    """Whether a day, as records have it, is at most 30 days ago: a machine is not what it was. ValueError for none."""
    return (datetime.date.fromisoformat(today()) - datetime.date.fromisoformat(day)).days <= OLDEST_DAYS


def recall(key: str) -> Any:
    """The record of a key, or None: there is none, or it is damaged, or another user could have written it."""
    path = toolchain_cache.lookup(key, _SUFFIX)
    if path is None:
        return None
    try:
        return json.loads(path.read_text("ascii"))
    except (OSError, ValueError):
        return None


def keep(key: str, record: Any) -> None:
    """Keep a record in place of the one that the key had. Numbers that are not finite are kept as they are.

    OutputError where the cache cannot be written."""
    text = json.dumps(record)
    old = toolchain_cache.lookup(key, _SUFFIX)
    made = toolchain_cache.store(key, _SUFFIX, lambda path: _write(path, text))
    if old is not None and old != made:
        with contextlib.suppress(OSError):
            old.unlink()


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")
