"""Requests of threads that wait for others: the words of numba.cuda, and the answer to each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WARP = 32
FULL = (1 << WARP) - 1

# A thread that waits has asked (name, site, arguments). Within a block all its threads wait together, within a warp
# the lanes of the mask, which is the first argument.
BLOCK_WIDE = ("syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or")
Lanes = Mapping[int, Sequence[Any]]  # the arguments of each lane that takes part


@dataclass(frozen=True, slots=True)
class Request:
    """One call: its word, the number of its line, and its arguments."""

    word: str
    site: int
    arguments: tuple[Any, ...] = ()

    @property
    def is_block_wide(self) -> bool:
        return self.word in BLOCK_WIDE

    @property
    def mask(self) -> int:
        """The lanes that a call of a warp names."""
        return (int(self.arguments[0]) & FULL) if self.arguments else FULL


def of_block(word: str, flags: Sequence[Any]) -> Any:
    """The answer of a barrier to each thread of a block; `flags`: the arguments of all of them."""
    match word:
        case "syncthreads_count":
            return sum(map(bool, flags))
        case "syncthreads_and":
            return int(all(flags))
        case "syncthreads_or":
            return int(any(flags))
        case _:
            return None


def of_warp(word: str, lanes: Lanes) -> dict[int, Any]:
    """The answer to each lane of a warp. A shuffle from a lane that takes no part gives the lane's own value, as what
    the hardware gives is undefined: `strays` tells them."""
    if word.startswith("shfl_"):
        return {lane: _shuffled(word, lane, lanes) for lane in lanes}
    return _VOTES[word](lanes)


def strays(word: str, lanes: Lanes) -> dict[int, int]:
    """The lanes that read from a lane that takes no part, and from which."""
    if not word.startswith("shfl_"):
        return {}
    sources = {lane: _source(word, lane, arguments) for lane, arguments in lanes.items()}
    return {lane: source for lane, source in sources.items() if source not in lanes}


def _shuffled(word: str, lane: int, lanes: Lanes) -> Any:
    arguments = lanes[lane]
    value = arguments[1]
    return lanes.get(_source(word, lane, arguments), arguments)[1] if value is not None else None


def _source(word: str, lane: int, arguments: Sequence[Any]) -> int:
    """The lane that a shuffle reads from: its own where the other lies outside of its segment (CUDA C++ Programming
    Guide, "Warp Shuffle Functions")."""
    by = int(arguments[2])
    width = int(arguments[3]) if len(arguments) > 3 else WARP
    first = lane - lane % width
    match word:
        case "shfl_sync":
            return first + by % width
        case "shfl_up_sync":
            return lane - by if lane - by >= first else lane
        case "shfl_down_sync":
            return lane + by if lane + by < first + width else lane
        case _:
            other = lane ^ by
            return other if other < first + width else lane


def _bits(lanes: Lanes, chosen: Callable[[Any], bool]) -> int:
    return sum(1 << lane for lane, arguments in lanes.items() if chosen(arguments[1]))


def _ballot(lanes: Lanes) -> dict[int, Any]:
    return dict.fromkeys(lanes, _bits(lanes, bool))


def _vote(judge: Callable[[list[bool]], bool]) -> Callable[[Lanes], dict[int, Any]]:
    def voted(lanes: Lanes) -> dict[int, Any]:
        return dict.fromkeys(lanes, bool(judge([bool(arguments[1]) for arguments in lanes.values()])))

    return voted


def _match_any(lanes: Lanes) -> dict[int, Any]:
    alike: dict[Any, int] = {}
    for lane, arguments in lanes.items():
        alike[arguments[1]] = alike.get(arguments[1], 0) | 1 << lane
    return {lane: alike[arguments[1]] for lane, arguments in lanes.items()}


def _match_all(lanes: Lanes) -> dict[int, Any]:
    values = [arguments[1] for arguments in lanes.values()]
    alike = all(value == values[0] for value in values)
    return dict.fromkeys(lanes, (_bits(lanes, lambda _: True) if alike else 0, alike))


_VOTES: dict[str, Callable[[Lanes], dict[int, Any]]] = {
    "syncwarp": dict.fromkeys,
    "ballot_sync": _ballot,
    "all_sync": _vote(all),
    "any_sync": _vote(any),
    "eq_sync": _vote(lambda flags: all(flags) or not any(flags)),
    "match_any_sync": _match_any,
    "match_all_sync": _match_all,
    "activemask": lambda lanes: dict.fromkeys(lanes, sum(1 << lane for lane in lanes)),
}
SHUFFLES = ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync")
WAITING = (*BLOCK_WIDE, *SHUFFLES, *_VOTES)
