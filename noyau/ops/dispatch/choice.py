"""Kernel selection for a key, with the reasons: the recorded winner, else a trusted one, else a generated one that
passed its smoke certificate, else an attached one that was checked, else the reference.

`op.explain(x)`: which kernel runs for these inputs, why, since when, what else may run, and what was rejected."""

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from threading import Timer
from time import monotonic
from types import MappingProxyType
from typing import Any, TypeAlias

from noyau.codegen.language import LANGUAGES
from noyau.compiler.schedules.gpu.scatters import ways_in
from noyau.errors import BuildError, MissingExtraError, NoyauError, OutputError, UnsupportedError, warn
from noyau.hosts.numpy.c_library import AGAIN_S
from noyau.kernels.certificates import smoke
from noyau.kernels.programs import generate as generation
from noyau.kernels.programs.generate import BuiltProgram, GeneratedProgram, Key, Specialization, build, generate, key_of
from noyau.kernels.reference import Description
from noyau.kernels.trust import ineligible, source_of
from noyau.kernels.user_kernel import UserKernel, choose_constants
from noyau.text import TextRecord
from noyau.timing.verdict import spell_s
from noyau.toolchain import cache
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.cache import digest, today
from noyau.version import __version__


@dataclass(frozen=True, slots=True)
class Winner:
    """The fastest kernel at one size. `cells`: of the largest array of the call; `kernel`: a language of generated
    kernels, the name of an attached one, or "reference"; `text`: a digest of the kernel, or of the kernel that the
    reference beat: the record is stale if it changed; `median_s`: of a call; `when`: the day; `constants`: the choice
    from the lists of an attached kernel."""

    cells: int
    kernel: str
    text: str
    median_s: float
    when: str
    constants: tuple[tuple[str, Any], ...] = ()

    @property
    def title(self) -> str:
        """The kernel's name, with its constants."""
        message = ", ".join(f"{name}={value}" for name, value in self.constants)
        return f"{self.kernel} ({message})" if message else self.kernel


def recall_winners(description: Description, specialization: Specialization) -> tuple[Winner, ...]:
    """The winners of a key on this machine, the smallest sizes first; empty if none is recorded or readable."""
    entries = cache.recall(_key(description, specialization))
    try:
        return tuple(sorted(map(_read, entries or ()), key=lambda winner: winner.cells))
    except (TypeError, ValueError):
        return ()


def record(description: Description, specialization: Specialization, winners: Sequence[Winner]) -> None:
    """Store winners, replacing those of the same numbers of cells. OutputError where the cache cannot be written."""
    kept = {winner.cells: winner for winner in (*recall_winners(description, specialization), *winners)}
    cache.keep(_key(description, specialization), [asdict(kept[cells]) for cells in sorted(kept)])


def _read(entry: Mapping[str, Any]) -> Winner:
    return Winner(**{**entry, "constants": tuple((str(name), value) for name, value in entry.get("constants", ()))})


def bounds(winners: Sequence[Winner]) -> list[tuple[Winner, float]]:
    """Each winner with the number of cells up to which it is the nearest."""
    middles = [math.sqrt((one.cells + 1) * (two.cells + 1)) - 1 for one, two in pairwise(winners)]
    return list(zip(winners, [*middles, math.inf], strict=True)) if winners else []


def text_digest(text: str) -> str:
    """The digest of a kernel's text in a record."""
    return digest("kernel", text)


def usual_text(description: Description, specialization: Specialization) -> str:
    """The digest of the text of the default kernel, a trusted one, else the generated one: a reference that beat it may
    be slower than another. If a key has no such kernel, the digest of the empty text."""
    key = (description.reference, specialization.instance, specialization.constants, specialization.device)
    for kernel in description.kernels:
        if kernel.usage.trust and not ineligible(kernel, *key):
            return text_digest(kernel.text)
    for language in specialization.languages[:1]:
        with contextlib.suppress(NoyauError):
            return text_digest(generate(description, specialization, language).text)
    return text_digest("")


def _key(description: Description, specialization: Specialization) -> str:
    return digest("winners", *_facts(description, specialization))


def _facts(description: Description, specialization: Specialization) -> list[str]:
    """The reference, the signature, the key, the machine."""
    instance, constants, integers, layouts, is_deterministic, device = key_of(specialization)
    parts = [str(part) for part in (instance, constants, integers, [str(layout) for layout in layouts])]
    parts += ["deterministic"] * (is_deterministic or description.is_deterministic)
    return [source_of(description.reference.function), str(description.signature), *parts, *machine_of(device)]


def machine_of(device: str) -> list[str]:
    """The parts of a machine that a record depends on: CPU level and compiler, or GPU, driver and compilers."""
    if device != generation.CPU:
        from noyau.hosts.torch.cuda.clock import device_text

        return [device_text(int(device.partition(":")[2] or 0))]
    try:
        compiler = c_compiler.find_compiler().version
    except BuildError:
        compiler = "none"
    return [c_compiler.level(), compiler]


REFERENCE = "reference"
USUAL: Mapping[str, int] = MappingProxyType({})  # sizes of tiles
ALOUD_S = 5.0  # after which a first call reports what it is doing
TRIES = 4  # failures of a key, each at other sizes, after which no other sizes are tried
AtSizes: TypeAlias = Callable[[Mapping[str, int]], bool]
Runner: TypeAlias = BuiltProgram | UserKernel
Attempt: TypeAlias = tuple[AtSizes, BuiltProgram | str]
Reasons: TypeAlias = dict[str, str]  # why kernels may not run, by name


class NoRoom(str):
    """The reason why a program cannot be built at present: a full disk, which may pass."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """One kernel for a key. `kernel`: a language, the name of an attached one, or "reference"; `runner`: a generated
    program, an attached kernel, or None for the reference; `tiles`: sizes of tiles on a GPU other than the defaults."""

    kernel: str
    language: str
    reason: str
    runner: Runner | None
    since: str = field(default_factory=today)
    tiles: Mapping[str, int] = field(default_factory=lambda: USUAL)


@dataclass(frozen=True, slots=True)
class Selection:
    """The selection for a key: kernels, each with the largest number of cells of the largest array that it is for; and
    the rejected kernels, with reasons. `until`: when to decide again, by the monotonic clock, if there was no room."""

    wanted: Specialization
    choices: tuple[tuple[Choice, float], ...]
    rejected: tuple[tuple[str, str], ...]
    until: float = math.inf

    def at(self, cells: int) -> Choice:
        """The choice for a number of cells of the largest array."""
        return next(choice for choice, most in self.choices if cells <= most)

    @property
    def only(self) -> Choice | None:
        """The single kernel for all sizes, or None."""
        return self.choices[0][0] if len({choice.kernel for choice, _ in self.choices}) == 1 else None


@dataclass(slots=True)
class Selector:
    """The choices of an op, made once a key; failures are not repeated. `programs`: the attempts in order, each a
    program or the reason for none, and a predicate on sizes; `demands`: the sizes that the reference last asked for."""

    description: Description
    chosen: dict[Key, list[Selection]] = field(default_factory=dict)
    programs: dict[tuple[Key, str], list[Attempt]] = field(default_factory=dict)
    demands: dict[Key, tuple[str, ...]] = field(default_factory=dict)
    once: generation.Once = field(default_factory=generation.Once)

    def choose(self, specialization: Specialization) -> Selection:
        """Choose a kernel for a key, and for these sizes if the reference asks for them."""
        key = generation.key_of(specialization)
        return self.once.value(key, lambda: self.recall(key, specialization), lambda: self.anew(key, specialization))

    def anew(self, key: Key, specialization: Specialization) -> Selection:
        """Decide for a key and record it, unless choices are forgotten meanwhile."""
        chosen = self.chosen
        with aloud(self.description, lambda: self.demands.get(key, ())):
            selection = self.decide(specialization, key)
        now = monotonic()
        chosen[key] = [*(each for each in chosen.get(key, ()) if each.until > now), selection]
        return selection

    def forget(self) -> None:
        """Discard all choices, also one that a thread is making now."""
        self.chosen = {}

    def is_kept(self, chosen: Selection) -> bool:
        """Whether a choice has not been forgotten."""
        return any(each is chosen for kept in list(self.chosen.values()) for each in kept)

    def recall(self, key: Key, specialization: Specialization) -> Selection | None:
        """The earlier selection that holds for these sizes, or None."""
        now = monotonic()
        return next((c for c in self.chosen.get(key, ()) if c.until > now and self.holds(c, key, specialization)), None)

    def holds(self, chosen: Selection, key: Key, specialization: Specialization) -> bool:
        """Whether the results of attempts at other sizes, programs or reasons for none, hold at these."""
        tried = [self.earlier(chosen.wanted, key, language) for language in specialization.languages]
        return all(at(specialization.sizes) for at, _ in filter(None, tried))

    def decide(self, specialization: Specialization, key: Key) -> Selection:
        """The selection for a key, from records and from the kernels that can run."""
        rejected: Reasons = {}
        choices = list(self.won(specialization, key, rejected))
        if not choices:
            choices = [(next(self.candidates(specialization, key, rejected)), math.inf)]
        missed = next((item for item in rejected.items() if isinstance(item[1], NoRoom)), None)
        if missed is None:
            return Selection(specialization, tuple(choices), tuple(rejected.items()))
        message = f"{self.description.name}: {missed[0]} cannot be built now: {missed[1]}"
        warn(f"{message}; {choices[0][0].kernel} runs instead, and after {AGAIN_S:g} s a call tries again")
        return Selection(specialization, tuple(choices), tuple(rejected.items()), monotonic() + AGAIN_S)

    def won(self, specialization: Specialization, key: Key, rejected: Reasons) -> Iterator[tuple[Choice, float]]:
        """The recorded winners that have not changed and may run."""
        winners = recall_winners(self.description, specialization)
        pairs = [(winner, self.winner(winner, specialization, key, rejected)) for winner in winners]
        known = {winner: choice for winner, choice in pairs if choice is not None}
        yield from ((known[winner], most) for winner, most in bounds(list(known)))

    def winner(self, winner: Winner, specialization: Specialization, key: Key, rejected: Reasons) -> Choice | None:
        """The kernel that won, if unchanged; else its reason goes to `rejected`."""
        reason = f"the fastest at {winner.cells} cells ({spell_s(winner.median_s)}), timed on {winner.when}"
        runner = self.maker_of(winner, specialization, key)
        if isinstance(runner, str):
            rejected[winner.kernel] = runner
            return None
        language = runner.language if isinstance(runner, UserKernel) else winner.kernel if runner else "numpy"
        tiles = dict(winner.constants) if isinstance(runner, BuiltProgram) else USUAL
        return Choice(winner.kernel, language, reason, runner, winner.when, tiles)

    def maker_of(self, winner: Winner, specialization: Specialization, key: Key) -> Runner | str | None:
        """The winning kernel, None for the reference; or the reason why it may not run at present."""
        if winner.kernel == REFERENCE:
            stale = winner.text != usual_text(self.description, specialization)
            return "what it was faster than has changed since it was timed" if stale else None
        attached = next((each for each in self.description.kernels if each.name == winner.kernel), None)
        if attached is not None:
            attached, stale = choose_constants(attached, winner.constants), text_digest(attached.text) != winner.text
            return "it has changed since it was timed" if stale else self.refusal(attached, specialization) or attached
        if winner.kernel not in specialization.languages:
            return "it won before, and is no kernel of the op any more"
        program = self.program(specialization, key, winner.kernel)
        stale = isinstance(program, BuiltProgram) and text_digest(program.generated.text) != winner.text
        return "its text has changed since it was timed" if stale else program

    def candidates(
        self, specialization: Specialization, key: Key, rejected: Reasons, *, tried: bool = False
    ) -> Iterator[Choice]:
        """The kernels that may run, in the order of choice without timings; the reference is the last. `tried`: only
        those generated kernels that were built already."""
        bars = {kernel.name: self.refusal(kernel, specialization) for kernel in self.description.kernels}
        free = [kernel for kernel in self.description.kernels if not bars[kernel.name]]
        rejected |= {name: why for name, why in bars.items() if why}
        yield from (Choice(each.name, each.language, "it is trusted", each) for each in free if each.usage.trust)
        graph = generation.lazy_graph(self.description.reference, specialization)
        for language in generation.in_order(specialization.languages, graph):
            if tried and self.earlier(specialization, key, language) is None:
                continue
            program = self.program(specialization, key, language)
            if isinstance(program, BuiltProgram):
                ways = [way.value for kernel in program.generated.program.kernels for way in ways_in(kernel)]
                reason = "; ".join(["generated", "it passed its smoke certificate", *ways])
                yield Choice(language, language, reason, program)
            else:
                rejected[language] = program
        yield from (Choice(each.name, each.language, "it was checked", each) for each in free if not each.usage.trust)
        yield Choice(REFERENCE, "numpy", "it is the op as it is written", None)

    def refusal(self, kernel: UserKernel, specialization: Specialization) -> str:
        """The reason why an attached kernel may not run, or an empty text."""
        key = (specialization.instance, specialization.constants, specialization.device)
        return ineligible(kernel, self.description.reference, *key)

    def program(self, specialization: Specialization, key: Key, language: str) -> BuiltProgram | str:
        """The certified program in a language; or the reason why there is none. Tried once, unless for lack of room."""
        attempt = self.earlier(specialization, key, language)
        if attempt is None:
            attempt = self.attempt(specialization, key, language)
            if not isinstance(attempt[1], NoRoom):
                self.programs.setdefault((key, language), []).append(attempt)
        return attempt[1]

    def earlier(self, specialization: Specialization, key: Key, language: str) -> Attempt | None:
        """The earlier attempt that holds at these sizes, or None."""
        return next((each for each in self.programs.get((key, language), ()) if each[0](specialization.sizes)), None)

    def attempt(self, specialization: Specialization, key: Key, language: str) -> Attempt:
        """An attempt at a program, with a predicate on the sizes where it holds; after some failures, on all sizes."""
        failed = sum(isinstance(program, str) for _, program in self.programs.get((key, language), ()))
        at: AtSizes = _everywhere
        try:
            program = self.generate(specialization, language)
            self.demands[key] = tuple(program.specialised)
            at = program.is_certified_at
            built = build(program)
            fault = smoke_fault(self.description, built)
        except UnsupportedError as error:
            at, message = error.at or at, str(error)
        except (BuildError, MissingExtraError) as error:
            message = str(error)
        except OutputError as error:
            message = NoRoom(error) if error.lacks_room else str(error)
        except NoyauError as error:
            message = f"its smoke certificate could not be made: {error}"
        else:
            if not fault:
                return at, built
            message = f"its smoke certificate failed: {fault}"
        return at if failed + 1 < TRIES else _everywhere, message

    def generate(self, specialization: Specialization, language: str) -> GeneratedProgram:
        """The program in a language. A missing compiler is reported before anything is printed; an error of tracing
        takes precedence."""
        try:
            LANGUAGES[language].require_compiler()
        except BuildError:
            generation.trace_reference(self.description.reference, specialization)
            raise
        return generate(self.description, specialization, language)


def _everywhere(sizes: Mapping[str, int]) -> bool:
    return True


@contextlib.contextmanager
def aloud(description: Description, sizes: Callable[[], tuple[str, ...]]) -> Iterator[None]:
    """Report on stderr, once, if the block takes long. `sizes`: those that the reference has asked for by then."""
    title = f"{description.name} ({description.place})"

    def say() -> None:
        names = ", ".join(sizes())
        why = f"; its reference asks for the number of {names}: each step of a loop over it is built" if names else ""
        sys.stderr.write(f"noyau: the first call of {title} is making kernels for {ALOUD_S:g} s now{why}\n")

    timer = Timer(ALOUD_S, say)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # without a thread there is no report
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def smoke_fault(description: Description, program: BuiltProgram) -> str:
    """The fault of a program's smoke certificate, made now or earlier on this machine; empty if it passes."""
    generated = program.generated
    parts = (generated.language, generated.text, str(generated.launches(generated.wanted.sizes)))
    key = digest("smoke", __version__, *parts, *_facts(description, generated.wanted))
    if cache.recall(key) is None:
        certificate = smoke(description, program)
        if not certificate.ok:
            return certificate.summary()
        with contextlib.suppress(OutputError):  # then the next process repeats it
            cache.keep(key, {"op": description.name, "summary": certificate.summary()})
    return ""


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(TextRecord):
    """The kernel of one call, and why. `key`: common to calls that run the same kernel; `eligible` and `rejected`:
    other kernels, each with the reason."""

    op: str
    key: str
    kernel: str
    language: str
    why: str
    since: str
    eligible: tuple[tuple[str, str], ...]
    rejected: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        lines = [f"{self.op}({self.key})", f"  runs {self.kernel}, in {self.language}, since {self.since}: {self.why}"]
        lines += [f"  {kernel} may run too: {why}" for kernel, why in self.eligible]
        lines += [f"  {kernel} may not: {why}" for kernel, why in self.rejected]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The record, for `json.dumps`."""
        return {"schema_version": 1, **asdict(self)}


def explain_choice(choosing: Selector, chosen: Selection, cells: int) -> Explanation:
    """The explanation of a selection for a number of cells of the largest array."""
    wanted, choice, rejected = chosen.wanted, chosen.at(cells), dict(chosen.rejected)
    others = list(choosing.candidates(wanted, generation.key_of(wanted), rejected, tried=True))
    eligible = [(each.kernel, each.reason) for each in others if each.kernel != choice.kernel]
    for name in (choice.kernel, *dict(eligible)):  # checked since, it may run now
        rejected.pop(name, None)
    runs = (choice.kernel, choice.language, choice.reason, choice.since)
    return Explanation(choosing.description.name, _key_text(wanted), *runs, tuple(eligible), tuple(rejected.items()))


def as_written(explanation: Explanation) -> Explanation:
    """The explanation of the same call within `noyau.reference()`."""
    why = "everything runs as it is written here: within noyau.reference()"
    others = [explanation.kernel, *(name for name, _ in explanation.eligible)]
    rejected = [*((name, why) for name in others if name != REFERENCE), *explanation.rejected]
    runs = {"kernel": REFERENCE, "language": "numpy", "why": why, "since": today()}
    return replace(explanation, **runs, eligible=(), rejected=tuple(rejected))


def explain_unsigned(description: Description, trusted: UserKernel | None, reason: str) -> Explanation:
    """The explanation of a call without a signature: a trusted kernel runs, else the reference."""
    own = (REFERENCE, "numpy", "it is the op as it is written")
    runs = (trusted.name, trusted.language, "it is trusted") if trusted else own
    return Explanation(description.name, "without a signature", *runs, today(), (), (("generated", reason),))


def _key_text(key: Specialization) -> str:
    """The key as text: `x: f32[rows, n], packed; eps=1e-05`."""
    lies = [f" {key.layout(at)}" if value.shape else "" for at, value in enumerate(key.instance.inputs)]
    values = [f"{value.name}: {value}{layout}" for value, layout in zip(key.instance.inputs, lies, strict=True)]
    constants = [f"{name}={value!r}" for name, value in (*key.constants.items(), *key.integers.items())]
    return "; ".join([", ".join(values), *constants])
