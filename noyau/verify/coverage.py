"""The inputs that a check of a kernel covered: sizes that ran, numbers of its own that none was past, its lines that
never ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from noyau.text import printable


@dataclass(slots=True)
class Coverage:
    """Sizes by name, the least and the largest that ran; `points`: numbers at which the kernel may begin to behave
    otherwise, with what they are called; `idle`: its lines that never ran, where that was seen."""

    points: Mapping[int, str] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    idle: tuple[int, ...] = ()

    def note(self, sizes: Mapping[str, int]) -> None:
        """Count sizes that ran."""
        for name, size in sizes.items():
            least, most = self.sizes.get(name, (size, size))
            self.sizes[name] = min(least, size), max(most, size)

    @property
    def never_past(self) -> tuple[str, ...]:
        """The points that no size was past."""
        most = max((most for _, most in self.sizes.values()), default=0)
        return tuple(text for number, text in sorted(self.points.items()) if self.sizes and number >= most)

    @property
    def spans(self) -> str:
        """`rows 0 to 33, cols 3 to 513`."""
        return ", ".join(
            f"{printable(name)} {least} to {most}" if least < most else f"{printable(name)} = {least}"
            for name, (least, most) in self.sizes.items()
        )

    @property
    def gaps(self) -> tuple[str, ...]:
        """In words, what was not covered."""
        never = [f"never past {', '.join(self.never_past)}"] if self.never_past else []
        return (*never, *([f"{spell_lines(self.idle)} never ran"] if self.idle else []))

    def to_json(self) -> dict[str, Any]:
        sizes = {name: list(span) for name, span in self.sizes.items()}
        return {"sizes": sizes, "never_past": list(self.never_past), "lines_never_run": list(self.idle)}


def spell_lines(lines: Iterable[int]) -> str:
    """`lines 14-16, 20`."""
    numbers = sorted(set(lines))
    runs = [[line for _, line in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"line{'s' * (len(numbers) != 1)} {', '.join(texts)}"
