"""`noyau.check(op)`: each kernel of an op against its reference in float64, in parts that two processes share."""

import importlib.util
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Thread
from typing import Any, Generic, NoReturn, TypeVar

from noyau.codegen.language import GENERATIONS, LANGUAGES
from noyau.engines.laws import check_laws
from noyau.engines.reduction import as_reduction
from noyau.errors import FindingKind, InputError, MissingExtraError, NoyauError, SignatureError
from noyau.jobs.check.attempts import Sizes, require_among, require_sizes
from noyau.jobs.check.bare_kernel import check_bare, is_bare
from noyau.jobs.check.candidates import ByHand, FromReference, KernelCandidate, begin, from_reference
from noyau.jobs.check.gradients import check_formula, check_gradient_kernels, place_of_gradient
from noyau.jobs.check.isolated_kernels import KernelProcesses
from noyau.jobs.check.kernel import OneKernel
from noyau.jobs.command_line import Step
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.op import Op
from noyau.ops.op_homes import end_loading
from noyau.sanitizer import engine
from noyau.sanitizer.c import build
from noyau.text import printable
from noyau.verify.checks import KernelCheck, OpCheck, require_tolerance
from noyau.workers.resources import processors
from noyau.workers.worker import ForkedWorker, Request, StateUse

Say = Callable[[str], None]

# Kinds after which the process of a kernel cannot be trusted by others.
SPOILING = frozenset({FindingKind.OUT_OF_BOUNDS, FindingKind.NEGATIVE_INDEX, FindingKind.CRASH})
SLOW_S = 60.0  # the time limit of compiling generated kernels in Numba
R = TypeVar("R")
Runner = Callable[[Iterable[int]], Iterator[R]]  # yields the results of the parts with these numbers, in order
_THREADED = ("tensorflow", "jax", "cupy")
_ENDS_S = 2.0  # the time limit for a copy to end its own child processes


def of_torch(
    function: Any, args: Sequence[Any] | None, reference: Callable[..., Any] | None, tolerance: float | None, seed: int
) -> OpCheck:
    """The check of a torch function. SignatureError if it is none, MissingExtraError without torch."""
    if isinstance(function, Op) or not callable(function) or args is None or reference is None:
        usage = "an op alone, or a function of torch: noyau.check(function, (x, y), reference=f)"
        raise SignatureError(f"noyau.check takes {usage}; it was given {function!r}")
    try:
        from noyau.jobs.check.torch_checks import check_function
    except ModuleNotFoundError as fault:
        raise MissingExtraError("torch is not installed; run: pip install 'noyau-kernels[torch]'") from fault
    return check_function(function, args, reference, tolerance=tolerance, seed=seed)


def check(
    op: Op[..., Any] | Callable[..., Any],
    args: Sequence[Any] | None = None,
    *,
    launch: Any = None,
    reference: Callable[..., Any] | None = None,
    sizes: Mapping[str, int] | None = None,
    tolerance: float | None = None,
    seed: int = 0,
    patience_s: float = 20.0,
    budget_s: float = 10.0,
    generated: bool | Collection[str] = True,
    gradient: bool | None = None,
    declared: Mapping[str, int] | None = None,
) -> OpCheck:
    """Check every kernel of an op against its reference evaluated in float64, by certificates; `generated`: also the
    kernels that noyau generates from it, or those in some languages: "numba_cuda" takes a while without a GPU, for each
    thread is run; `gradient`: also the op's gradients, by default only if written by hand.

    Inputs are made from the signature (awkward numbers and sizes: 0, 1, primes, block sizes and their neighbours), or
    by `inputs=`, whose sizes are varied; `sizes` are usual ones. Each case runs twice, on poisoned outputs between
    guard zones, with one thread and with many; Python callables on strided arrays too. User kernels run in a process of
    their own, so that a crash, or a run longer than `patience_s` (five seconds on few cells), is a finding. After
    `budget_s` no further inputs are tried on a kernel. `tolerance`: allow |got - want| <= tolerance * max(1, |want|).

    A failure is shrunk to the smallest sizes that show it. A kernel that passes is recorded: from then on the op runs
    it. `declared`: sizes, by the names of the signature, that the op is meant for; nothing is run at them, and warnings
    say where a launch or the arithmetic of a kernel fails there. SignatureError and InputError if reference or inputs
    do not fit the signature. A reduction has its laws tested. For a kernel without an op see `check_bare`, for torch
    `check_function`."""
    if is_bare(op):
        return check_bare(op, args, launch=launch, reference=reference, tolerance=tolerance)
    if (reduction := as_reduction(op)) is not None:
        return check_laws(reduction, seed)
    if not isinstance(op, Op) or args is not None or reference is not None:
        return of_torch(op, args, reference, tolerance, seed)
    end_loading()
    wishes = CheckOptions(sizes or {}, declared or {}, tolerance, seed, patience_s, budget_s, generated, gradient)
    return check_together([(op, wishes)])[0]


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The options of `check`. InputError for an invalid tolerance or an unknown language."""

    sizes: Sizes = field(default_factory=dict)
    declared: Sizes = field(default_factory=dict)
    tolerance: float | None = None
    seed: int = 0
    patience_s: float = 20.0
    budget_s: float = 10.0
    generated: bool | Collection[str] = True
    gradient: bool | None = None

    def __post_init__(self) -> None:
        require_tolerance(self.tolerance)
        if unknown := [each for each in self.languages if each not in GENERATIONS]:
            known = ", ".join(GENERATIONS)
            raise InputError(f"noyau makes no kernels in {printable(str(unknown[0]))}; it does in: {known}")

    @property
    def languages(self) -> tuple[str, ...]:
        """The chosen languages of generated kernels; () for all that run here directly."""
        return () if isinstance(self.generated, bool) else tuple(self.generated)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a check: an op, its `form` with one signature, and a kernel of that, or None for its gradient."""

    op: Op[..., Any]
    form: Op[..., Any]
    wishes: CheckOptions
    what: UserKernel | FromReference | None

    @property
    def title(self) -> str:
        """The name of the part in messages."""
        return f"the gradient of {self.op.name}" if self.what is None else f"{self.op.name}[{self.what.name}]"

    @property
    def is_slow(self) -> bool:
        """Whether compiling takes seconds: one process alone should load the compiler."""
        return isinstance(self.what, FromReference) and bool(LANGUAGES[self.what.language].thread_pool)

    @property
    def rank(self) -> int:
        """The priority of its turn: gradients, which load torch, come first, slow parts last."""
        return 0 if self.what is None else 1 + self.is_slow

    @property
    def stays(self) -> bool:
        """Whether it must run in this process: autograd refuses to run in a forked copy after it ran before."""
        return self.what is None and "torch" in sys.modules

    def run(self, apart: Callable[[Op[..., Any], float], KernelProcesses]) -> list[KernelCheck]:
        """Run the part; its checks' names contain the signature if the op has several."""
        form, wishes = self.form, self.wishes
        candidate: UserKernel | KernelCandidate | None = self.what
        if isinstance(candidate, UserKernel):
            candidate = ByHand(candidate, form.description.reference, apart(form, wishes.patience_s))
        if candidate is None:
            checks = check_gradients(form, wishes.sizes, wishes.seed, wishes.budget_s)
        else:
            one = OneKernel(form, candidate, wishes.tolerance, wishes.budget_s, wishes.declared)
            checks = [one.run(wishes.sizes, wishes.seed)]
        return checks if form is self.op else [replace(each, name=f"{each.name}: {form.signature}") for each in checks]


def check_together(
    requests: Sequence[tuple[Op[..., Any], CheckOptions]], say: Say = lambda line: None, *, share: bool = False
) -> list[OpCheck]:
    """The checks of several ops; `say` receives a line for each kernel. `share`: with a copy of this process, which has
    only loaded them, on another core. Errors as in `check`."""
    parts = [[part for form in op.forms for part in _parts(op, form, wishes)] for op, wishes in requests]
    every = [part for own in parts for part in own]
    order = sorted(range(len(every)), key=lambda number: every[number].rank)
    if share and is_of_use() and sum(part.is_slow for part in every) > 1:
        prepare({part.what.language for part in every if isinstance(part.what, UserKernel)})
    patience_s = SLOW_S + sum(wishes.patience_s + 9 * wishes.budget_s for _, wishes in requests)
    run = partial(_run, [every[number] for number in order], say)
    stay = [place for place, number in enumerate(order) if every[number].stays]
    each = share_work(len(every), run, "a copy of this process", patience_s, stay) if share else run(range(len(every)))
    checks = dict(zip(order, each, strict=True))
    results = iter([checks[number] for number in range(len(every))])
    kernels = [tuple(check for _ in own for check in next(results)) for own in parts]
    for form in (form for op, _ in requests for form in op.forms if form.kernels):
        form.calls.forget()  # from now on kernels that passed may run, and others may not
    pairs = zip(requests, kernels, strict=True)
    return [OpCheck(op.name, op.description.place, each, wishes.tolerance) for (op, wishes), each in pairs]


def _parts(op: Op[..., Any], form: Op[..., Any], wishes: CheckOptions) -> Iterator[_Part]:
    """The kernels of an op with one signature, and its gradient if asked for or written by hand."""
    require_sizes(form, wishes.sizes)
    signed = op.signature.sizes if op.signature is not None else ()
    require_among(signed, wishes.declared, op.name, " in its signature; there are")
    kernels: list[UserKernel | FromReference] = [*form.kernels.values()]
    kernels += from_reference(form, wishes.languages) if wishes.generated else []
    yield from (_Part(op, form, wishes, each) for each in kernels)
    if form.description.gradient is not None if wishes.gradient is None else wishes.gradient:
        yield _Part(op, form, wishes, None)


def check_gradients(op: Op[..., Any], sizes: Mapping[str, int], seed: int, budget_s: float) -> list[KernelCheck]:
    """Check the gradient of an op with a signature in each way of computing it.

    First the op's own gradient (derived, or by its `gradient`) in float64, against the derivative of the traced
    reference and central differences; then its kernels, on packed and strided arrays; then, if torch can be imported,
    autograd's gradients. SignatureError without a signature, InputError if no inputs can be synthesized."""
    if op.signature is None:
        raise SignatureError(f"{op.name} has no signature, so its gradient cannot be checked; give it one")
    place = place_of_gradient(op)
    checks, end_s = [check_formula(op, sizes, seed)], time.monotonic() + budget_s
    if checks[0].skipped or not checks[0].ok:
        return checks
    checks.append(check_gradient_kernels(op, sizes, seed, end_s, place))
    if importlib.util.find_spec("torch") is not None:
        from noyau.jobs.check.torch_checks import check_tensors

        checks.append(check_tensors(op, sizes, seed, place))
    return checks


def _run(parts: Sequence[_Part], say: Say, numbers: Iterable[int]) -> Iterator[list[KernelCheck]]:
    """Run some parts in order. Consecutive parts of one op share the process of its kernels."""
    with ExitStack() as stack:
        opened: list[KernelProcesses] = []

        def apart(form: Op[..., Any], patience_s: float) -> KernelProcesses:
            if not opened or opened[-1].op is not form:
                stack.close()
                opened[:] = [stack.enter_context(KernelProcesses(form, patience_s))]
                opened[-1].begin()
            return opened[-1]

        for done, part in enumerate(map(parts.__getitem__, numbers)):
            say(Step(f"checking {part.title}", done, len(parts)))
            checks = part.run(apart)
            if opened and any(error.kind in SPOILING for each in checks for error in each.errors):
                opened[-1].renew()
            yield checks


def prepare(languages: Collection[str]) -> None:
    """Load Numba while a compiler builds the sanitizer of its kernels and of those in C, C++ or CUDA C++, if among the
    `languages`. Then a fork finds no thread half-way through, and none of this is done twice."""
    of_c = {each.is_cpp for each in map(LANGUAGES.__getitem__, languages) if each.is_text}
    jobs = *(partial(build.runtime, in_cpp=in_cpp) for in_cpp in sorted(of_c)), engine.library
    thread = Thread(target=_do, args=jobs, name="noyau-ahead", daemon=True)
    thread.start()
    try:
        begin()
    finally:
        thread.join()


def _do(*jobs: Callable[[], object]) -> None:
    """Run jobs; an error is reported by the first kernel that needs the result."""
    for job in jobs:
        with suppress(NoyauError):
            job()


def share_work(count: int, runner: Runner[R], name: str, patience_s: float, stay: Collection[int] = ()) -> list[R]:
    """The results of `runner(range(count))`. With another core, a forked copy takes parts from the end, except those
    that `stay`, while this process takes parts from the front, until none is left; each runs `runner` once. Results
    must pickle; side effects of a part stay in its process. If the copy fails, or takes `patience_s` longer than this
    process, its parts run here, and raise here."""
    if count < 2 or not is_of_use():
        return list(runner(range(count)))
    work = SharedParts(count, runner, stay)
    with ForkedWorker(name, patience_s, state=work, grace_s=_ENDS_S) as copy:
        copy.is_counted = False
        copy.begin(Request(run_share, scope=StateUse.USES))
        results = work.run(range(count))
        with suppress(NoyauError):
            results |= copy.reply()
    left = [number for number in range(count) if number not in results]
    results |= zip(left, runner(left), strict=True)
    return [results[number] for number in range(count)]


def is_of_use() -> bool:
    """Whether there is another core, and this process can be forked: calls of a library that has started threads of its
    own, which a fork lacks, may wait for them. torch's do not if limited to one thread."""
    if sys.platform != "linux" or processors() < 2:
        return False
    loaded = any(package in sys.modules for package in _THREADED)
    return not loaded or len(os.listdir("/proc/self/task")) <= processors()  # BLAS's threads start again after a fork


@dataclass(slots=True, eq=False)
class SharedParts(Generic[R]):
    """Parts that two processes share, each done once; `taken` is shared between them; a copy does not take `stay`."""

    count: int
    runner: Runner[R]
    stay: Collection[int] = ()
    taken: Any = field(init=False)  # shared bytes with a lock

    def __post_init__(self) -> None:
        self.taken = multiprocessing.get_context("fork").Array("b", self.count)

    def run(self, order: Sequence[int]) -> dict[int, R]:
        """The results, by number, of the parts that were still free, taken in this order."""
        mine: list[int] = []

        def numbers() -> Iterator[int]:
            while (number := self.take(order)) is not None:
                mine.append(number)
                yield number

        results = list(self.runner(numbers()))
        return dict(zip(mine, results, strict=True))

    def take(self, order: Sequence[int]) -> int | None:
        """The first free part; None if there is none."""
        with self.taken.get_lock():
            number = next((number for number in order if not self.taken[number]), None)
            if number is not None:
                self.taken[number] = 1
        return number


def run_share(work: SharedParts[R]) -> dict[int, R]:
    """In the copy: the results of its parts, taken from the end."""
    signal.signal(signal.SIGTERM, _exit)
    return work.run([number for number in reversed(range(work.count)) if number not in work.stay])


def _exit(number: int, frame: object) -> NoReturn:
    raise SystemExit  # unwinds every `with`
