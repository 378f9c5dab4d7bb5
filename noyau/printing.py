"""What a session or a notebook shows of a record: what `print` shows."""

from __future__ import annotations


class Printed:
    """What has one text, `str`. A dataclass of it says `repr=False`, or it would be shown field by field."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
