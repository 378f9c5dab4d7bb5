"""Winners: which kernel of an op was the fastest on this machine, by key and by how much it moved."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from noyau.errors import BuildError, NoyauError
from noyau.kernels.programs.generate import CPU, GeneratedProgram, Specialization, generate, key_of
from noyau.kernels.reference import Description
from noyau.kernels.trust import ineligible, source_of
from noyau.toolchain import cache
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.cache import digest
from noyau.version import __version__


@dataclass(frozen=True, slots=True)
class Winner:
    """The fastest kernel at one size. `cells`: of the largest array of the call; `kernel`: a language of generated
    kernels, the name of an attached one, or "reference"; `text`: a digest of the kernel, or of what the reference was
    faster than, which is stale where that changed; `median_s`: of a call; `when`: the day; `constants`: those chosen of
    an attached kernel that has lists of them."""

    cells: int
    kernel: str
    text: str
    median_s: float
    when: str
    constants: tuple[tuple[str, Any], ...] = ()

    @property
    def title(self) -> str:
        """Its name, with the constants."""
        message = ", ".join(f"{name}={value}" for name, value in self.constants)
        return f"{self.kernel} ({message})" if message else self.kernel


def recall_winners(description: Description, specialization: Specialization) -> tuple[Winner, ...]:
    """The winners of a key on this machine, the smallest first; none where none is recorded, or can be read."""
    entries = cache.recall(_key(description, specialization))
    try:
        return tuple(sorted(map(_read, entries or ()), key=lambda winner: winner.cells))
    except (TypeError, ValueError):
        return ()


def record(description: Description, specialization: Specialization, winners: Sequence[Winner]) -> None:
    """Keep winners, in place of those of the same numbers of cells. OutputError where the cache cannot be written."""
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
    """The digest of the text of the kernel that runs by default, a trusted one, else the generated one: a reference
    that was faster may be slower than another one. Of a key without such a kernel nothing does."""
    key = (description.reference, specialization.instance, specialization.constants, specialization.device)
    for kernel in description.kernels:
        if kernel.usage.trust and not ineligible(kernel, *key):
            return text_digest(kernel.text)
    for language in specialization.languages[:1]:
        with contextlib.suppress(NoyauError):
            return text_digest(generate(description, specialization, language).text)
    return text_digest("")


def smoke_key(description: Description, generated: GeneratedProgram) -> str:
    """The key of a smoke certificate: reference, texts, launches of the call, key, machine, judge."""
    parts = (generated.language, generated.text, str(generated.launches(generated.wanted.sizes)))
    return digest("smoke", __version__, *parts, *_facts(description, generated.wanted))


def _key(description: Description, specialization: Specialization) -> str:
    return digest("winners", *_facts(description, specialization))


def _facts(description: Description, specialization: Specialization) -> list[str]:
    """The reference, the signature, the key, the machine."""
    instance, constants, integers, layouts, is_deterministic, device = key_of(specialization)
    parts = [str(part) for part in (instance, constants, integers, [str(layout) for layout in layouts])]
    parts += ["deterministic"] * (is_deterministic or description.is_deterministic)
    return [source_of(description.reference.function), str(description.signature), *parts, *machine_of(device)]


def machine_of(device: str) -> list[str]:
    """The machine as a record depends on it: the CPU's level and the compiler, or the GPU, its driver and compilers."""
    if device != CPU:
        from noyau.hosts.torch.cuda.clock import device_text

        return [device_text(int(device.partition(":")[2] or 0))]
    try:
        compiler = c_compiler.find_compiler().version
    except BuildError:
        compiler = "none"
    return [c_compiler.level(), compiler]
