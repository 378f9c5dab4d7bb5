"""Products of few rows with weights in few bits, as one launch in language `triton`: x @ w.T + bias of several weights
that read the same rows, the dequantisation inside. Cells of 8 bits hold q + 128 with a scale a channel; of 4 bits, byte
j of a channel holds q + 8 of the inputs j (low) and j + half (high), with a scale for each group of inputs. Sums are in
float32: one row cell by cell in registers, more in the matrix unit. docs/notes/performance.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from noyau.codegen.triton.launch import WAIT
from noyau.codegen.triton.printer import may_begin_early
from noyau.codegen.triton.tables import TORCH, TYPES
from noyau.dtypes import DType
from noyau.toolchain.cache import digest

MOST_ROWS = 16  # of the matrix unit; more are a product that uses each weight often, and keeps the one it had
GROUPS = (128, 64, 32)  # inputs that share a scale, of 4 bits
_WIDEN = 0x4B000000  # 2**23 as a float32, whose last 23 bits are the cell
_LETTERS = 12
_NAME = "NAME"


@dataclass(frozen=True, slots=True)
class WeightForm:
    """Form of weights: `bits` 8 or 4, or 0 for weights as they were; `group`: inputs that share a scale, 0 for all."""

    bits: int = 0
    group: int = 0

    def __str__(self) -> str:
        scales = f"in groups of {self.group}" if self.group else "by channel"
        return f"{self.bits} bits {scales}" if self.bits else "as it was, in a kernel of few rows"


FORMS = (WeightForm(8), *(WeightForm(4, group) for group in GROUPS))


@dataclass(frozen=True, slots=True)
class RowProducts:
    """Products of `rows` x `depth` cells of a dtype with weights of `widths` channels each; `biased`: which of them add
    a bias. The function takes x, then of each product its weights (cells and scales, or as they were) and its bias.
    Where they are `gated`, two products have one result: silu of the first times the second."""

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
        """Inputs of a channel in memory: of 4 bits, both halves are whole groups."""
        return self.depth + (-self.depth % (2 * self.form.group) if self.form.bits == 4 else 0)

    @property
    def span(self) -> int:
        """Cells of a channel that lie side by side in memory: bytes, of 4 bits."""
        return self.padded // 2 if self.form.bits == 4 else self.depth

    @property
    def tile(self) -> tuple[int, int, int]:
        """Channels and cells of a tile, and warps of a program."""
        if self.rows > 1:
            longest = self.form.group or 256
            return 32 if sum(self.widths) >= 8192 else 16, max(16, min(longest, _power(self.span))), 4
        channels, cells, warps = {0: (2, 2048, 4), 8: (4, 2048, 4), 4: (8, 1024, 4)}[self.form.bits]
        channels = max(2, channels // 2) if self.gated else channels  # cells of both products are held
        return channels, max(self.form.group, min(cells, _power(self.span))), warps


def source(products: RowProducts) -> tuple[str, str]:
    """The name of the function, which ends in a digest, and the text."""
    text = "\n".join(ProductPrinter(products).lines())
    name = f"row_products_{digest(text)[:_LETTERS]}"
    return name, text.replace(_NAME, name)


def _power(count: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(count - 1, 0).bit_length()


class ProductPrinter:
    """The text of some products."""

    def __init__(self, products: RowProducts) -> None:
        self.products, self.form = products, products.form
        self.channels, self.cells, self.warps = products.tile
        self.is_dot, self.is_whole = products.rows > 1, products.span % self.cells == 0
        self.cell_type = TYPES[products.dtype]

    def lines(self) -> Iterator[str]:
        products = self.products
        parts = [f"w{'s' * bool(self.form.bits)}{'b' * biased}" for biased in products.biased]
        names = ", ".join(["x", *(f"{letter}{at}" for at, letters in enumerate(parts) for letter in letters)])
        results = ", ".join(f"y{at}" for at in range(len(products.results)))
        yield from ("import torch", "import triton", "import triton.language as tl", "", "", "@triton.jit")
        yield from (f"def {_NAME}_0({names}, {results}, EARLY: tl.constexpr):", "    block = tl.program_id(0)")
        first, blocks = 0, [-(-width // self.channels) for width in products.results]
        for at, count in enumerate(blocks):
            word = f"{'el' if at else ''}if block < {first + count}:" if at < len(blocks) - 1 else "else:"
            yield from [f"    {word}"] if len(blocks) > 1 else []
            yield from (f"    {'    ' * (len(blocks) > 1)}{line}" for line in self.body(at, first))
            first += count
        yield from ("", "", f"def {_NAME}({names}):")
        kind = f"dtype={TORCH[products.dtype]}, device=x.device"
        for at, width in enumerate(products.results):
            yield f"    y{at} = torch.empty(({products.rows}, {width}), {kind})"
        yield f"    EARLY = {may_begin_early('x')}"
        yield f"    {_NAME}_0[({first},)]({names}, {results}, EARLY, num_warps={self.warps})"
        yield from (f"    return {results}", "")

    def body(self, at: int, first: int) -> Iterator[str]:
        """Lines of one result, whose programs begin with `first`."""
        products, width = self.products, self.products.widths[at]
        places = (0, 1) if products.gated else (at,)
        inside = "" if width % self.channels == 0 else f"n < {width}"
        yield f"n = {f'(block - {first})' if first else 'block'} * {self.channels} + tl.arange(0, {self.channels})"
        yield from ["m = tl.arange(0, 16)"] if self.is_dot else []
        parts = 16 if self.is_dot else self.cells // (self.form.group or 1)
        yield from (f"acc{each} = tl.zeros(({self.channels}, {parts}), tl.float32)" for each in places)
        yield from [WAIT] if self.is_dot else []  # what loops with products load is moved before them
        yield f"for k0 in range(0, {products.span}, {self.cells}):"
        yield f"    k = k0 + tl.arange(0, {self.cells})"
        mask = self.inner("k", products.span, inside)
        cells = f"n[:, None] * {products.span} + k[None, :]{mask}"
        yield from (f"    c{each} = tl.load(w{each} + {cells})" for each in places)
        yield from [] if self.is_dot else [f"    {WAIT}"]
        for each in places:
            added = self.halves(each, inside) if self.form.bits == 4 else self.whole(each)
            yield from (f"    {line}" for line in added)
        for each in places:
            yield from self.end(each, inside)
        yield from self.store_lines(at, inside)

    def inner(self, index: str, bound: int, inside: str) -> str:
        """The mask of a tile: channels that are there, and cells below the bound."""
        beyond = [] if self.is_whole else [f"({index} < {bound})[None, :]"]
        return _mask_arguments(" & ".join([*([f"({inside})[:, None]"] if inside else []), *beyond]))

    def rows(self, index: str, bound: int) -> str:
        """The cells of the rows at an index, 0 beyond the `bound`."""
        reaches = not self.is_whole or (self.form.bits == 4 and self.products.padded > self.products.depth)
        if not self.is_dot:
            return f"tl.load(x + {index}{_mask_arguments(f'{index} < {bound}' if reaches else '')}).to(tl.float32)"
        mask = f"(m < {self.products.rows})[None, :]" + (f" & ({index} < {bound})[:, None]" if reaches else "")
        return f"tl.load(x + m[None, :] * {self.products.depth} + ({index})[:, None]{_mask_arguments(mask)})"

    def whole(self, at: int) -> Iterator[str]:
        """Lines that add a tile whose cells are of one scale, or have none."""
        yield f"v = {self.rows('k', self.products.depth)}"
        cells = self.wide(f"c{at}", 128) if self.form.bits else f"c{at}.to(tl.float32)"
        if self.is_dot:
            cells = f"({cells}).to({self.cell_type})" if self.form.bits else f"c{at}"
            yield f'acc{at} = tl.dot({cells}, v, acc{at}, input_precision="ieee")'
        else:
            yield f"acc{at} += ({cells}) * v[None, :]"

    def halves(self, at: int, inside: str) -> Iterator[str]:
        """Lines that add a tile of bytes of two cells, group by group."""
        products, group, half, count = self.products, self.form.group, self.products.span, self.cells // self.form.group
        yield f"g = k0 // {group} + tl.arange(0, {count})"
        mask = self.inner("g", half // group, inside)
        for cells, late in ((f"c{at} & 15", 0), (f"c{at} >> 4", half)):
            index = f"{late} + k" if late else "k"
            yield f"v = {self.rows(index, products.depth)}"
            place = f"n[:, None] * {products.padded // group} + {late // group} + g[None, :]"
            yield f"s = tl.load(s{at} + {place}{mask}).to(tl.float32)"
            if self.is_dot:
                yield f"q = ({self.wide(f'({cells})', 8)}).to({self.cell_type})"
                yield f'acc{at} += tl.dot(q, v, input_precision="ieee") * s'
            else:
                yield f"p = ({self.wide(f'({cells})', 8)}) * v[None, :]"
                yield f"acc{at} += tl.sum(tl.reshape(p, ({self.channels}, {count}, {group})), 2) * s"

    def wide(self, cells: str, middle: int) -> str:
        """Unsigned cells as float32, less their middle."""
        return f"({cells}.to(tl.int32) | {_WIDEN}).to(tl.float32, bitcast=True) - {(1 << 23) + middle}.0"

    def end(self, at: int, inside: str) -> Iterator[str]:
        """Lines that scale a product and add the bias."""
        axis = "[:, None]" if self.is_dot else ""
        yield f"r{at} = acc{at}" if self.is_dot else f"r{at} = tl.sum(acc{at}, 1)"
        if self.form.bits == 8:
            yield f"r{at} *= tl.load(s{at} + n{_mask_arguments(inside)}){axis}"
        if self.products.biased[at]:
            yield f"r{at} += tl.load(b{at} + n{_mask_arguments(inside)}).to(tl.float32){axis}"

    def store_lines(self, at: int, inside: str) -> Iterator[str]:
        """Lines that store a result."""
        products, place, mask = self.products, "n", inside
        if products.gated:
            yield "r0 = r0 / (1.0 + tl.exp(-r0)) * r1"
        if self.is_dot:
            place = f"m[None, :] * {products.widths[at]} + n[:, None]"
            mask = f"(m < {products.rows})[None, :]{f' & ({inside})[:, None]' if inside else ''}"
        yield f"tl.store(y{at} + {place}, r{at}.to({self.cell_type}){f', mask={mask}' if mask else ''})"


def _mask_arguments(mask: str) -> str:
    return f", mask={mask}, other=0" if mask else ""
