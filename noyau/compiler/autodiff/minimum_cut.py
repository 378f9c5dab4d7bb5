"""The minimum cut of a network: the cheapest vertices and edges that part its source from its sink."""

from __future__ import annotations

from collections import deque

SOURCE, SINK = "<source", "<sink"  # no value's names: those of vertices end in < or >


class Network:
    """Vertices and how much may flow between them: Edmonds and Karp, 1972."""

    def __init__(self) -> None:
        self.room: dict[str, dict[str, float]] = {}

    def join(self, start: str, end: str, room: float) -> None:
        self.room.setdefault(start, {}).setdefault(end, 0.0)
        self.room.setdefault(end, {}).setdefault(start, 0.0)
        self.room[start][end] += room

    def before_the_last_cut(self) -> set[str]:
        """The vertices on the source's side of the cheapest cut, of several the one that is nearest to the sink."""
        while (path := self.path()) is not None:
            flow = min(self.room[a][b] for a, b in path)
            for a, b in path:
                self.room[a][b] -= flow
                self.room[b][a] += flow
        behind, waiting = {SINK}, [SINK]
        while waiting:
            end = waiting.pop()
            for start in self.room.get(end, {}):
                if start not in behind and self.room[start][end] > 0:
                    behind.add(start)
                    waiting.append(start)
        return self.room.keys() - behind

    def path(self) -> list[tuple[str, str]] | None:
        """A shortest way on which something may flow."""
        parents: dict[str, str] = {SOURCE: SOURCE}
        waiting = deque([SOURCE])
        while waiting:
            start = waiting.popleft()
            for end, room in self.room.get(start, {}).items():
                if room > 0 and end not in parents:
                    parents[end] = start
                    waiting.append(end)
        if SINK not in parents:
            return None
        way, end = list[tuple[str, str]](), SINK
        while end != SOURCE:
            way.append((parents[end], end))
            end = parents[end]
        return way
