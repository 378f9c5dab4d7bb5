"""Products of few rows with weights in few bits, as one launch in language `triton`: x @ w.T + bias for several weights
that read the same rows, with dequantisation inside.

Reading the weights takes most of the time. A cell of 8 bits holds q + 128, with a scale per channel; four cells share a
word where that is faster. With 4 bits, byte j of a channel holds q + 8 for the inputs j (low) and j + half (high), with
a scale per group of inputs. An unsigned cell becomes a float32 as bits in the mantissa of 2**23. Sums are in float32.
One row is summed in registers, its weights loaded before the launch waits for the previous one (programmatic dependent
launch); more rows use the matrix unit, which multiplies 8-bit integers exactly as halves."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from noyau.codegen.triton.launch import WAIT
from noyau.codegen.triton.printer import may_begin_early
from noyau.dtypes import DType
from noyau.toolchain.cache import digest

MOST_ROWS = 16  # rows of the matrix unit; products of more rows keep their usual kernel, which reuses each weight


@dataclass(frozen=True, slots=True)
class WeightForm:
    """Form of weights: `bits` 8 or 4, or 0 for unchanged weights; `group`: how many inputs share a scale, 0 for all."""

    bits: int = 0
    group: int = 0

    def __str__(self) -> str:
        scales = f"in groups of {self.group}" if self.group else "by channel"
        return f"{self.bits} bits {scales}" if self.bits else "as it was, in a kernel of few rows"


FORMS = (WeightForm(8), *(WeightForm(4, group) for group in (128, 64, 32)))


@dataclass(frozen=True, slots=True)
class RowProducts:
    """Products of `rows` x `depth` cells of a dtype with weights of `widths` channels each; `biased`: which of them add
    a bias. The function takes x, then for each product its weights (cells and scales, or unchanged) and its bias.
    If `gated`, the two products give one result: silu of the first times the second."""

    form: WeightForm
    rows: int
    depth: int
    widths: tuple[int, ...]
    biased: tuple[bool, ...]
    dtype: DType
    gated: bool = False

    @property
    def results(self) -> tuple[int, ...]:
        return self.widths[:1] if self.gated else self.widths

    @property
    def padded(self) -> int:
        """The inputs of a channel in memory: with 4 bits, padded so that each half consists of whole groups."""
        return self.depth + (-self.depth % (2 * self.form.group) if self.form.bits == 4 else 0)

    @property
    def has_words(self) -> bool:
        """Whether cells of 8 bits are packed in words: word i has cell i of each quarter of a channel."""
        return self.form.bits == 8 and self.rows == 1 and self.depth % 2048 == 0

    @property
    def span(self) -> int:
        """The length of a channel in memory: in cells; in bytes for 4 bits; in words if it has words."""
        return self.depth // 4 if self.has_words else self.padded // 2 if self.form.bits == 4 else self.depth

    @property
    def tile(self) -> tuple[int, int, int]:
        """The channels and the cells of a tile, and the warps of a program."""
        if self.rows > 1:
            longest = self.form.group or 256
            return 32 if sum(self.widths) >= 8192 else 16, max(16, min(longest, power_of_two(self.span))), 4
        channels, cells, warps = {0: (2, 2048, 4), 8: (4, 2048, 4), 4: (8, 1024, 4)}[self.form.bits]
        channels, cells = (8 if self.depth <= 4096 else 4, 512) if self.has_words else (channels, cells)
        channels = max(2, channels // 2) if self.gated else channels  # a program holds cells of both products
        return channels, max(self.form.group, min(cells, power_of_two(self.span))), warps


def source(products: RowProducts) -> tuple[str, str]:
    """The name of the function, which ends in a digest, and the text."""
    form, biased, count = products.form, products.biased, len(products.results)
    (channels, cells, warps), is_dot, is_whole = products.tile, products.rows > 1, products.span % products.tile[1] == 0
    words = dict[str, object](BITS=form.bits, GROUP=form.group or 1, DOT=is_dot, WHOLE=is_whole, WAIT=WAIT)
    words["WORDS"] = products.has_words
    words |= {"ROWS": products.rows, "DEPTH": products.depth, "SPAN": products.span, "PADDED": products.padded}
    words |= {"CHANNELS": channels, "CELLS": cells, "PARTS": 16 if is_dot else cells // (form.group or 1)}
    words |= {"REACHES": not is_whole or products.padded > products.depth, "GATED": products.gated}
    parts = [f"w{at}{f', s{at}' if form.bits else ''}{f', b{at}' if each else ''}" for at, each in enumerate(biased)]
    names, results = ", ".join(["x", *parts]), ", ".join(f"y{at}" for at in range(count))
    operands = [f"w{at}, {'s' if form.bits else 'w'}{at}, {'b' if each else 'w'}{at}" for at, each in enumerate(biased)]
    lines, first = ["@triton.jit", f"def NAME_0({names}, {results}, EARLY: tl.constexpr):"], 0
    for at, width in enumerate(products.results):
        other, blocks = at + products.gated, -(-width // channels)
        among = "block >= 0" if at == count - 1 else f"(block >= 0) & (block < {blocks})"
        call = f"x, {operands[at]}, {operands[other]}, y{at}, block, EARLY, {width}, {biased[at]}, {biased[other]}"
        lines += [f"    block = tl.program_id(0) - {first}", f"    if {among}:", f"        NAME_part({call})"]
        first += blocks
    sizes = "dtype=x.dtype, device=x.device"
    lines += ["", "", f"def NAME({names}):", f"    EARLY = {may_begin_early('x')}"]
    lines += [f"    y{at} = torch.empty((ROWS, {width}), {sizes})" for at, width in enumerate(products.results)]
    lines += [f"    NAME_0[({first},)]({names}, {results}, EARLY, num_warps={warps})", f"    return {results}", ""]
    return with_words("row_products", words, "\n".join(["", "", *lines]))


def with_words(name: str, words: Mapping[str, object], more: str = "") -> tuple[str, str]:
    """The name of a function, which ends in a digest, and its text: a file of this folder and `more`, with `words`."""
    text = Path(__file__).with_name(f"{name}.txt").read_text("ascii") + more
    text = re.sub(r"\b[A-Z]+[0-9]?\b", lambda match: str(words.get(match[0], match[0])), text)
    name = f"{name}_{digest(text)[:12]}"
    return name, text.replace("NAME", name)


def power_of_two(count: int) -> int:  # the least one >= count
    return 1 << max(count - 1, 0).bit_length()
