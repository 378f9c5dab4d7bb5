"""A graph or a module as a whole, with its kernels, against the user's own run of it: slower, it loses the half of its
kernels that gains least, then more, then all."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch

from noyau.text import several
from noyau.timing.comparison import DECIDED, compare
from noyau.timing.verdict import Comparison, Verdict

log = logging.getLogger("noyau")
Run = Callable[..., Any]
ATTEMPTS = 4  # at a whole that is not slower, each with half of the kernels, before it is handed back as it was
_FIRST = 2  # calls in which kernels come to be
_WARM, _WARM_S = 8, 1.0  # calls before a timing, in which launches are recorded, and when there are no more
_BUDGET_S = 0.5


def loses(whole: Comparison | None) -> bool:
    """Whether a whole that was timed is slower, or may be: in doubt the user's own wins."""
    verdict = None if whole is None else whole.verdict
    return verdict is Verdict.SLOWER or (whole is not None and verdict is Verdict.AMBIGUOUS and whole.speedup < 1)


def loss_of(whole: Comparison | None) -> str:
    return (
        "" if whole is None else f"as a whole the module is {whole.verdict.name} with its kernels: {whole.speedup:.2f}x"
    )


def least(gains: Mapping[str, float]) -> list[str]:
    """The half of the kernels that gains least, by their gains in seconds; nothing where no kernel would be left."""
    kept = sorted(gains, key=gains.__getitem__)
    return kept[: (len(kept) + 1) // 2] if len(kept) > 1 else []


def settle(
    attempt: Callable[[Mapping[str, str]], tuple[Run, Comparison | None, Mapping[str, float]]], at_most: int = ATTEMPTS
) -> tuple[Run, Comparison | None]:
    """The first attempt that does not lose, or the last. An attempt has a run without the kernels that are dropped,
    how it compares, and what each kernel of it gains."""
    dropped: dict[str, str] = {}
    while True:
        run, whole, gains = attempt(dropped)
        at_most -= 1
        rest = least(gains) if at_most and loses(whole) else []
        if not rest:
            return run, whole
        log.info("%s: once more without %s", loss_of(whole), several(len(rest), "kernel"))
        dropped |= dict.fromkeys(rest, loss_of(whole))


@dataclass(slots=True)
class JudgedGraph:
    """A graph that dynamo captured, as `run` has it compiled. Its third call is the first for which all kernels are
    there: that has it timed on what it is own, with its gradients where they are wanted, against what `rival` makes
    of it. Where it loses, `again` compiles it with fewer kernels; at last the rival runs. What changes its arguments
    is not run twice, and so not timed."""

    run: Run
    rival: Callable[[Sequence[Any]], Run]
    again: Callable[[Mapping[str, str], Sequence[Any]], tuple[Run, Mapping[str, float]]]
    gains: Mapping[str, float]
    calls: int = 0
    lock: Any = field(default_factory=Lock)

    def __call__(self, *arguments: Any) -> Any:
        if self.calls > _FIRST or not self.lock.acquire(blocking=False):
            return self.run(*arguments)
        try:
            self.calls += 1
            if self.calls > _FIRST:
                self.judge(arguments)
                return self.run(*arguments)
            before = list(_versions(arguments))
            result = self.run(*arguments)
            if before != list(_versions(arguments)):
                self.calls = _FIRST + 1
            return result
        finally:
            self.lock.release()

    def judge(self, arguments: Sequence[Any]) -> None:
        """Choose who runs from now on. What goes wrong leaves it as it is."""
        devices = sorted({each.get_device() for each in arguments if isinstance(each, torch.Tensor) and each.is_cuda})
        try:
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():  # which a lost device refuses
                return
            with torch.random.fork_rng(devices=devices):
                rival = self.rival(alike(arguments))
                run, whole = settle(lambda dropped: self.attempt(rival, dropped, arguments))
            log.info("%s", f"{loss_of(whole)}; torch runs it" if loses(whole) else "as a whole it is not slower")
            self.run = rival if loses(whole) else run
        except Exception:  # its own run says what is wrong, or there is no memory to run it twice
            log.info("a graph was not timed as a whole", exc_info=True)
        finally:
            del self.rival, self.again  # they hold the graph

    def attempt(
        self, rival: Run, dropped: Mapping[str, str], arguments: Sequence[Any]
    ) -> tuple[Run, Comparison | None, Mapping[str, float]]:
        run, gains = self.again(dropped, alike(arguments)) if dropped else (self.run, self.gains)
        before, after = step_of(rival, arguments), step_of(run, arguments)
        for side in (before, after):
            start_s = time.perf_counter()
            for count in range(_WARM):
                if count < _FIRST or time.perf_counter() - start_s < _WARM_S:
                    side()
        return run, compare(before, after, budget_s=_BUDGET_S, enough=DECIDED), dict(gains)


def _versions(arguments: Sequence[Any]) -> Iterator[int]:
    """Counts of changes, of what counts them."""
    for each in arguments:
        if isinstance(each, torch.Tensor):
            yield -1 if each.is_inference() else each._version


def alike(arguments: Sequence[Any]) -> list[Any]:
    """The arguments, with gradients of their own: nobody else's are touched."""
    return [
        each.detach().requires_grad_(each.requires_grad) if isinstance(each, torch.Tensor) else each
        for each in arguments
    ]


def step_of(run: Run, arguments: Sequence[Any]) -> Callable[[], None]:
    """A call to its end on the device, and back where gradients are wanted."""
    on_gpu = any(getattr(each, "is_cuda", False) for each in arguments)

    def step() -> None:
        own = alike(arguments)
        results = torch.utils._pytree.tree_leaves(run(*own))
        ends = [each for each in results if isinstance(each, torch.Tensor) and each.requires_grad]
        wanted = [each for each in own if isinstance(each, torch.Tensor) and each.requires_grad]
        if ends and wanted:
            torch.autograd.grad(ends, wanted, list(map(torch.ones_like, ends)), allow_unused=True)
        if on_gpu:
            torch.cuda.synchronize()

    return step
