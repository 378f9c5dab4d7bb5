"""A graph or a module as a whole, with its kernels, against torch's own run of it: if slower, it loses the half of its
kernels that gains least, then more, then all. Arguments that a call changes are copied for timing."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from noyau.errors import UnsupportedError, first_line
from noyau.hosts.torch.cuda.tensor_rotation import shares_memory
from noyau.jobs.profile.record import Wall
from noyau.jobs.profile.torch_wall import measure_wall
from noyau.text import several
from noyau.timing.comparison import DECIDED, compare
from noyau.timing.verdict import Comparison

log = logging.getLogger("noyau")
Run = Callable[..., Any]
Attempt = tuple[Run, Comparison | None, Mapping[str, float]]
ATTEMPTS = 4  # at a whole that is not slower, each with half of the kernels, before the original is handed back
_FIRST = 2  # calls in which kernels are compiled
_WARM, _WARM_S = 8, 1.0  # the most calls before a timing, in which launches are recorded, and their time limit
_BUDGET_S = 0.5
_MOST_COMPARED = 1 << 30  # the most bytes of arguments without a version counter that are compared with copies


def loses(whole: Comparison | None) -> bool:
    """Whether a timed whole is slower by the median, however little: in doubt the original wins."""
    return whole is not None and whole.speedup < 1


def loss_of(whole: Comparison | None) -> str:
    words = "as a whole the module is {} with its kernels: {:.2f}x"
    return "" if whole is None else words.format(whole.verdict.name, whole.speedup)


def least(gains: Mapping[str, float]) -> list[str]:
    """The half of the kernels that gains least, by their gains in seconds; nothing if no kernel would be left."""
    kept = sorted(gains, key=gains.__getitem__)
    return kept[: (len(kept) + 1) // 2] if len(kept) > 1 else []


def settle(attempt: Callable[[Mapping[str, str]], Attempt], most: int = ATTEMPTS) -> tuple[Run, Comparison | None, str]:
    """The first attempt that does not lose, or the last, with its comparison, and the outcome as text. An attempt
    returns a run without the dropped kernels, its comparison, and the gain of each of its kernels."""
    dropped: dict[str, str] = {}
    while True:
        run, whole, gains = attempt(dropped)
        most -= 1
        rest = least(gains) if most and loses(whole) else []
        if not rest:
            fewer = f", without {several(len(dropped), 'kernel')} that gained least" if dropped else ""
            return run, whole, f"{loss_of(whole)}{fewer}{'; torch runs it' if loses(whole) else ''}"
        log.info("%s: once more without %s", loss_of(whole), several(len(rest), "kernel"))
        dropped |= dict.fromkeys(rest, loss_of(whole))


@dataclass(slots=True)
class JudgedGraph:
    """A graph that dynamo captured, compiled as `run`. Its third call is the first for which all kernels are there: it
    times the graph on its arguments, with gradients if these are wanted, against the run that `rival` returns. If it
    loses, `again` compiles it with fewer kernels, unless it is None; in the end the rival runs. `tell` receives the
    outcome as text."""

    run: Run
    rival: Callable[[Sequence[Any]], Run]
    again: Callable[[Mapping[str, str], Sequence[Any]], tuple[Run, Mapping[str, float]]] | None
    gains: Mapping[str, float]
    tell: Callable[[str], None] = log.info
    calls: int = 0
    changed: frozenset[int] = frozenset()
    lock: Any = field(default_factory=Lock)

    def __call__(self, *arguments: Any) -> Any:
        if self.calls > _FIRST or not self.lock.acquire(blocking=False):
            return self.run(*arguments)
        try:
            self.calls += 1
            if self.calls <= _FIRST:
                result, changed = watch_changes(self.run, arguments)
                self.changed |= changed
                return result
            if self.calls == _FIRST + 1:  # another thread may have judged since the look at the count above
                self.judge(arguments)
            return self.run(*arguments)
        finally:
            self.lock.release()

    def judge(self, arguments: Sequence[Any]) -> None:
        """Choose the run of all later calls. After an error the present one stays."""
        devices = sorted({each.get_device() for each in arguments if isinstance(each, torch.Tensor) and each.is_cuda})
        try:
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():  # raises for a lost device
                raise UnsupportedError("a CUDA graph was being captured")
            with torch.random.fork_rng(devices=devices):
                own, restore = apart(arguments, self.changed)
                rival = self.rival(alike(own))
                most = 1 if self.again is None else ATTEMPTS
                run, whole, words = settle(lambda dropped: self.attempt(rival, dropped, own, restore), most)
            self.run = rival if loses(whole) else run
            self.tell(words)
        except Exception as error:  # the graph's own run reports it, or there is no memory for a second run
            self.tell(f"not timed as a whole: {first_line(error)}")
            log.debug("a graph was not timed as a whole", exc_info=True)
        finally:
            del self.rival, self.again  # they keep the graph alive

    def attempt(
        self, rival: Run, dropped: Mapping[str, str], arguments: Sequence[Any], restore: Callable[[], None]
    ) -> Attempt:
        run, gains = self.again(dropped, alike(arguments)) if dropped and self.again else (self.run, self.gains)
        before, after = step_of(rival, arguments, restore), step_of(run, arguments, restore)
        for side in (before, after):
            start_s = time.perf_counter()
            for count in range(_WARM):
                if count < _FIRST or time.perf_counter() - start_s < _WARM_S:
                    side()
        return run, compare(before, after, budget_s=_BUDGET_S, enough=DECIDED), dict(gains)


def time_wall_once(run: Run, tell: Callable[[Wall | None], None], is_due: Callable[[], bool]) -> Run:
    """A graph that passes its wall time's split to `tell`, once, after a call when `is_due`; None if it is unknown."""
    once = Lock()

    def call(*arguments: Any) -> Any:
        if once.locked() or not is_due() or not once.acquire(blocking=False):
            return run(*arguments)
        result, changed = watch_changes(run, arguments)
        try:
            own, restore = apart(arguments, changed)
            tell(measure_wall(step_of(run, own, restore)))
        except Exception:  # for example without memory for copies
            log.info("how the wall time of a graph splits was not measured", exc_info=True)
            tell(None)
        return result

    return torch._dynamo.disable(call)  # type: ignore[no-any-return]


def watch_changes(run: Run, arguments: Sequence[Any]) -> tuple[Any, frozenset[int]]:
    """The result of a call, and the indices of the arguments that it changed. Tensors of inference mode have no version
    counter: they are compared with copies, or, if too large for that, count as changed."""
    tensors = {at: each for at, each in enumerate(arguments) if isinstance(each, torch.Tensor)}
    silent = {at: each for at, each in tensors.items() if each.is_inference()}
    few = sum(each.nbytes for each in silent.values()) <= _MOST_COMPARED
    before = {at: (each.clone() if few else None) if at in silent else each._version for at, each in tensors.items()}
    result = run(*arguments)
    same = {at for at, was in before.items() if isinstance(was, int) and was == tensors[at]._version}
    same |= {at for at, was in before.items() if isinstance(was, torch.Tensor) and torch.equal(was, tensors[at])}
    return result, frozenset(tensors.keys() - same)


def apart(arguments: Sequence[Any], changed: frozenset[int]) -> tuple[list[Any], Callable[[], None]]:
    """The arguments, with copies of the same strides for the changed ones, and a function that restores these.
    UnsupportedError if a changed one shares memory with another argument: copies would not."""
    result = list(arguments)
    for at in changed:
        each = arguments[at]
        if sum(isinstance(other, torch.Tensor) and shares_memory(each, other) for other in arguments) > 1:
            raise UnsupportedError("it changes an argument that shares memory with another one")
        result[at] = torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=each.device)

    def restore() -> None:
        with torch.no_grad():
            for at in changed:
                result[at].copy_(arguments[at])

    restore()
    return result, restore


def alike(arguments: Sequence[Any]) -> list[Any]:
    """The arguments, detached, so that gradients do not touch the caller's."""
    return [
        each.detach().requires_grad_(each.requires_grad) if isinstance(each, torch.Tensor) else each
        for each in arguments
    ]


def step_of(run: Run, arguments: Sequence[Any], restore: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """A function that restores changed arguments, runs a call to its end on the device, and any backward."""
    on_gpu = any(getattr(each, "is_cuda", False) for each in tree_leaves([*arguments]))

    def step() -> None:
        restore()
        own = alike(arguments)
        results = tree_leaves(run(*own))
        ends = [each for each in results if isinstance(each, torch.Tensor) and each.requires_grad]
        wanted = [each for each in own if isinstance(each, torch.Tensor) and each.requires_grad]
        if ends and wanted:
            torch.autograd.grad(ends, wanted, list(map(torch.ones_like, ends)), allow_unused=True)
        if on_gpu:
            torch.cuda.synchronize()

    return step
