"""Language `triton`: kernels that Triton compiles for GPUs, and a Python function that launches them on torch tensors:
it computes the sizes, makes the results, chooses the tiles, and starts the launches in order.

Running the text needs only torch and triton; printing it needs neither."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import assert_never

from noyau.codegen.identifiers import refuse_name
from noyau.codegen.numba.printer import comment_text
from noyau.codegen.statements import INDENT, rounds_apart
from noyau.codegen.tables import as_operand, snippets, unwrap
from noyau.codegen.triton.expressions import TextFunctions, merge_function, row_functions
from noyau.codegen.triton.launch import TritonPrinter
from noyau.codegen.triton.memory import Even, is_led, led_row, tiles_covered
from noyau.codegen.triton.tables import INFIX, RESERVED, TORCH, SizeText, TritonNames, constant_in, own_function
from noyau.compiler.schedules.gpu.rows import IN_A_ROW, OUTER, RUN, strides_in
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, DimOp, product
from noyau.ir.loops import Buffer, Call, Const, Expr, Index, Kernel, Launch, Let, Role, Tile, TilePolicy
from noyau.ir.walk import every_statement, on_threads


def together(kernels: Sequence[Kernel], comment: str = "") -> str:
    """One text for kernels of different names that `grid.on_gpu` scheduled: a comment, their functions, their launches,
    and for each a function that starts them. GraphError where a name cannot be that of a function."""
    used, bodies = TextFunctions(), list[str]()
    for kernel in kernels:
        refuse_name(kernel, RESERVED)
        printers = [TritonPrinter(kernel, position, launch, used) for position, launch in enumerate(kernel.launches)]
        bodies += [printer.text() for printer in printers]
        bodies.append(HostFunction(kernel, printers, used).text())
    merges = [merge_function(monoid, dtype, used, loose) for monoid, dtype, loose in sorted(used.merges, key=_key_text)]
    own = [own_function(function, dtype, loose) for function, dtype, loose in sorted(used.functions, key=_key_text)]
    hosts = [text for name, text in HOST.items() if name in used.host]
    rows = row_functions(used.rows)
    below = "\n\n\n".join([*own, *rows, *merges, *hosts, *bodies])
    imports = "import torch\nimport triton\nimport triton.language as tl"
    if "libdevice." in below:
        imports += "\nfrom triton.language.extra import libdevice"
    head = "\n\n".join(part for part in (comment_text(comment), imports) if part)
    return f"{head}\n\n\n{below}\n" if below else f"{head}\n"


def _key_text(key: tuple[str, object, bool]) -> tuple[str, str, bool]:
    return key[0], str(key[1]), key[2]


NEAR = 1 << 15  # the most bytes of a row that stay in the L1, beside rows of other programs
WARP = 32  # threads
# A thread of 32 warps has at most 64 registers. When ptxas is told so, it starts all loads of an iteration before the
# first is used; the same helps rows of halves that share cells. Else it is left out: some backends lack the option.
REGISTERS = 'registers = {"maxnreg": 64} if %s else {}'
FEW = 16384  # bytes of rows: programs that load at most these at once hide each other's waiting
MOST_AT_ONCE = 16384
SHORT, MANY = 1024, 32768  # cells of a row, number of rows: up to these, programs need not save registers for others
OF_LED = 256  # the most cells per warp of growing tiles that begin before their rows
SIZED = (TilePolicy.FIXED, TilePolicy.LIMITED, TilePolicy.COVERING, TilePolicy.KEPT)
# Functions that choose arguments of a launch, by name.
_TEXTS = snippets(Path(__file__).with_name("host.txt"))
HOST = {name: text.replace("MOST_AT_ONCE", str(MOST_AT_ONCE)) for name, text in _TEXTS.items()}


def may_begin_early(tensor: str) -> str:
    """A condition, as text: launches on the device of a tensor may begin early, and wait inside the kernel."""
    least = f"torch.cuda.get_device_capability({tensor}.device) >= (9, 0)"
    return f"{tensor}.is_cuda and not torch.version.hip and {least}"


class HostFunction(SizeText):
    """Printer of the Python function that launches a kernel on tensors."""

    CDIV = "triton.cdiv"

    def __init__(self, kernel: Kernel, printers: Sequence[TritonPrinter], used: TextFunctions) -> None:
        super().__init__(TritonNames(kernel))
        self.kernel, self.printers, self.used = kernel, printers, used
        self.used.host |= {"index_type", "step_of", "warps_of"}
        self.ends = [buffer for buffer in kernel.buffers if buffer.role is not Role.SCRATCH]

    def text(self) -> str:
        inputs, outputs = (list(map(self.value, self.kernel.of(role))) for role in (Role.INPUT, Role.OUTPUT))
        lines = [*self.describe(), *self.sizes(), *self.checks(), *self.pack_inputs(), *self.results()]
        known = [buffer for buffer in self.kernel.buffers if not is_of_tiles(buffer)]
        lines.append(f"INDEX = index_type({', '.join(map(self.value, known))})")
        before: list[Expr] = []
        for when, printers in groupby(self.printers, lambda printer: printer.launch.when):
            head = self.condition_line(when, before)
            lines += [head] if head else []
            lines += [INDENT * bool(head) + line for line in self.start_together([*printers])]
        lines.append(f"return {', '.join(outputs)}")
        body = "\n".join(f"{INDENT}{line}".rstrip() for line in lines)
        return f"def {self.kernel.name}({', '.join([*inputs, '**tiles'])}):\n{body}"

    def value(self, buffer: Buffer) -> str:
        return self.names.value(buffer.name)

    def describe(self) -> Iterator[str]:
        ends = [f"{self.value(b)}: {b.dtype.value}[{', '.join(map(self.dim, b.shape))}]" for b in self.ends]
        count = len(self.kernel.of(Role.INPUT))
        yield f'"""{", ".join(ends[:count])} -> {", ".join(ends[count:])}'
        yield ""
        yield '`tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""'

    def sizes(self) -> Iterator[str]:
        """Lines that read the sizes from the inputs."""
        inputs = self.kernel.of(Role.INPUT)
        for binding in self.kernel.binding:
            buffer, name = inputs[binding.input], self.names.atom(binding.size)
            if binding.axis >= len(buffer.shape):
                yield f"{name} = {self.value(buffer)}.stride({binding.axis - len(buffer.shape)})"
                continue
            value = f"{self.value(buffer)}.shape[{binding.axis}]"
            if binding.offset != Dim.of(0):
                value = f"({value} - {as_operand(self.dim(binding.offset))})"
            yield f"{name} = {unwrap(value if binding.factor == 1 else f'{value} // {binding.factor}')}"

    def checks(self) -> Iterator[str]:
        """Lines that raise ValueError for shapes that do not fit the sizes, and for guards that do not hold."""
        bound = {(b.input, b.axis) for b in self.kernel.binding if b.factor == 1 and b.offset == Dim.of(0)}
        for number, buffer in enumerate(self.kernel.of(Role.INPUT)):
            if any((number, axis) not in bound for axis in range(len(buffer.shape))):
                name = self.value(buffer)
                yield f"if tuple({name}.shape) != {self.shape(buffer)}:"
                reason = f"{name} has shape {{tuple({name}.shape)}}, not {{{self.shape(buffer)}}}"
                yield f'{INDENT}raise ValueError(f"{reason}")'
        for guard in self.kernel.guards:
            cells, left, right = map(self.dim, (guard.cells, guard.left, guard.right))
            yield f"if {as_operand(cells)} != 0 and {left} > {right}:"
            yield f'{INDENT}raise ValueError(f"{{{left}}} is more than {{{right}}}")'

    def pack_inputs(self) -> Iterator[str]:
        """Lines that make inputs contiguous where the kernel reads them as packed."""
        for buffer in self.kernel.of(Role.INPUT):
            if buffer.strides is None and buffer.shape:
                yield f"{self.value(buffer)} = {self.value(buffer)}.contiguous()"
            elif buffer.strides is not None and buffer.layout == "inner":
                name = self.value(buffer)
                yield f"{name} = {name} if {name}.stride(-1) == 1 else {name}.contiguous()"

    def results(self) -> Iterator[str]:
        if not self.kernel.of(Role.INPUT):
            message = "has no inputs: language triton takes the device of the first one"
            raise UnsupportedError(f"{self.kernel.name} {message}")
        for buffer in self.kernel.buffers:
            if buffer.role is not Role.INPUT and not is_of_tiles(buffer):
                yield self.empty(buffer)

    def empty(self, buffer: Buffer) -> str:
        where = f"dtype={TORCH[buffer.dtype]}, device={self.first()}.device"
        return f"{self.value(buffer)} = torch.empty({self.shape(buffer)}, {where})"

    def shape(self, buffer: Buffer) -> str:
        return f"({', '.join(map(self.dim, buffer.shape))}{',' if len(buffer.shape) == 1 else ''})"

    # Launches.

    def start_together(self, printers: Sequence[TritonPrinter]) -> Iterator[str]:
        """Lines of consecutive launches, without assignments that are still valid from an earlier one."""
        sized, values = dict[str, Tile](), dict[str, str]()
        for printer in printers:
            tiles = [tile for tile in printer.tiles if sized.get(tile.name) != tile]
            sized |= {tile.name: tile for tile in tiles}
            for line in self.start(printer, tiles):
                name, _, value = line.partition(" = ")
                if not value or values.get(name) != value:
                    yield line
                    values = {one: text for one, text in values.items() if name not in text} | {name: value}

    def condition_line(self, when: Expr | None, before: list[Expr]) -> str:
        """The if, elif or else above launches; "" where they always run. `before` holds the conditions of the
        alternatives so far, and gets theirs too."""
        if when is None:
            before.clear()
            return ""
        parts, others = conjunction(when), [Call("logical_not", (one,), DType.BOOL) for one in before]
        if parts[: len(others)] != others:
            before.clear()
        own = parts[len(before) :] if before else [when]
        word = "elif" if before else "if"
        before += own
        if not own:
            before.clear()
        return f"{word} {' and '.join(unwrap(self.condition(one)) for one in own)}:" if own else "else:"

    def first(self) -> str:
        return self.value(self.kernel.of(Role.INPUT)[0])

    def start(self, printer: TritonPrinter, tiles: Sequence[Tile]) -> Iterator[str]:
        """Lines that start a launch; `tiles`: those whose sizes are not defined yet."""
        launch = printer.launch
        for tile in tiles:
            yield from self.tile(tile, launch, printer.tiles)
        for name, evens in printer.even.items():
            yield f"{name}_EVEN = {' and '.join(dict.fromkeys(self.even(name, even) for even in evens))}"
        if printer.staged:
            sizes = list(dict.fromkeys(map(self.dim, printer.staged)))
            most = sizes[0] if len(sizes) == 1 else f"max({', '.join(sizes)})"
            led = " if ALIGN == 1 else 1" if is_led(printer.tiles) else ""
            led += f" if {most} > {FEW} else 1" if printer.first_of(TilePolicy.KEPT) else ""
            yield f'STAGES = tiles.get("STAGES", {self.host("stages_of")}({most}){led})'
        if printer.texts.ends:
            yield f"ENDS = {' or '.join(f'{as_operand(self.dim(end))} % ALIGN != 0' for end in printer.texts.ends)}"
        if printer.is_early:
            yield f"EARLY = {may_begin_early(self.first())}"
        yield from (self.empty(b) for b in self.kernel.buffers if is_of_tiles(b) and self.value(b) in printer.buffers())
        yield f"programs = {self.dim(product(loop.extent for loop in on_threads(launch.body)[1]))}"
        yield from self.reloading(printer)
        sizes = [f"{size} // step_of({size})" if size in printer.step_sizes() else size for size in printer.sizes()]
        steps = [f"step_of({size})" for size in printer.step_sizes()]
        arguments = ", ".join([*printer.buffers(), *sizes, *steps, "INDEX", *printer.flags()])
        in_a_row = {IN_A_ROW, RUN, OUTER}.intersection(printer.tiles) in ({IN_A_ROW}, {RUN})
        in_a_row = in_a_row and all(buffer.dtype.bytes <= 2 for buffer in self.kernel.buffers)
        if is_of_several(printer):
            yield f"warps = {self.warps(printer)}"
            yield REGISTERS % "warps == 32"
        elif in_a_row:
            yield REGISTERS % f"{self.first()}.is_cuda and not torch.version.hip"
        yield "if programs > 0:"
        yield f"{INDENT}{printer.name}[(programs,)]("
        apart = ", enable_fp_fusion=False" if rounds_apart(self.kernel.launches) else ""
        apart += ", **registers" if is_of_several(printer) or in_a_row else ""
        apart += ', **({"launch_pdl": True} if EARLY else {})' if launch.hints.follows else ""
        yield f"{INDENT * 2}{arguments}, num_warps={'warps' if is_of_several(printer) else self.warps(printer)}{apart}"
        yield f"{INDENT})"

    def host(self, function: str) -> str:
        """The name of a function of host.txt; notes that the text needs it."""
        self.used.host.add(function)
        return function

    def reloading(self, printer: TritonPrinter) -> Iterator[str]:
        """Lines that define AGAIN, whether inputs are loaded again, and AHEAD, whether others are loaded ahead."""
        again, reload = printer.again(), printer.launch.hints.reload
        if reload is not None and again:
            led = "ALIGN == 1 and " if is_led(printer.tiles) else ""
            near = f"{led}{reload.tile.name} * {reload.cell_bytes} <= {NEAR}"
            near += f" and ({reload.tile.name} > {SHORT} or programs > {MANY})"
            yield f"AGAIN = {near} and {self.host('are_aligned')}({', '.join(again)})"
        if printer.texts.ahead:
            yield f"AHEAD = {' * '.join(tile.name for tile in printer.common)} <= {2 * SHORT}"

    def even(self, name: str, even: Even) -> str:
        """The condition, as text, for every cell of a tile to be inside."""
        whole = as_operand(self.dim(even.whole))
        texts = [f"{whole} % {as_operand(self.dim(step))} == 0" for step in even.steps] or [f"{whole} == {name}"]
        return " and ".join([*(["ALIGN == 1"] if even.led else []), *texts])

    def tile(self, tile: Tile, launch: Launch, tiles: Sequence[Tile]) -> Iterator[str]:
        name = tile.name
        self.words[str(tile.size)] = name
        match tile.policy:
            case TilePolicy.FIXED:
                values = ", ".join(str(tile.number * 2**k // 4) for k in range(5))
                usual = smaller(tile, tiles, str(tile.number)) + self.twice(tile, launch, tiles)
                yield f'{name} = tiles.get("{name}", {usual})  # or one of {values}'
            case TilePolicy.LIMITED:
                yield f'{name} = tiles.get("{name}", {self.limit(tile, launch)})'
            case TilePolicy.COVERING | TilePolicy.KEPT:
                extents = list(dict.fromkeys(self.dim(extent) for extent in lengths_covered(tile, launch))) or ["1"]
                most = extents[0] if len(extents) == 1 else f"max({', '.join(extents)})"
                yield f"{name} = min({tile.number}, triton.next_power_of_2(max(1, {most})))"
            case TilePolicy.OCCUPYING:
                whole = length_of(tile, launch)
                rows = product(loop.extent for loop in on_threads(launch.body)[1][:-1])
                each = f"{self.dim(rows * whole)}, {self.host('at_once')}({self.first()})"
                share = f"triton.next_power_of_2(triton.cdiv({each}))"
                yield f'{name} = tiles.get("{name}", min({tile.number}, max({tile.number // 4}, {share})))'
            case TilePolicy.GROWING:
                whole = length_of(tile, launch)
                part = f" // {MOST_AT_ONCE // tile.number}" if tile.number < MOST_AT_ONCE else ""
                several = tile.number > MOST_AT_ONCE
                size = f"{self.host('block_of')}({self.dim(whole * 2 // 3 if several else whole)}){part}"
                if several and is_led(tiles):
                    size += f" if ALIGN == 1 else {self.host('block_of')}({self.dim(whole * 2)}) // {tile.lead_divisor}"
                else:
                    size = smaller(tile, tiles, size)
                yield f'{name} = tiles.get("{name}", max(1, {size}))'
            case TilePolicy.ALIGNMENT:
                steps = [self.dim(step) for step in strides_in(row_of(launch), tile.number)]
                condition = " and ".join(f"{as_operand(step)} % {tile.number} == 0" for step in steps)
                yield f'{name} = tiles.get("{name}", 1 if {condition} else {tile.number})'
            case TilePolicy.SHARING:
                others = " * ".join(other.name for other in tiles if other.policy in SIZED)
                others = f"({others})" if " " in others else others or "1"
                yield f'{name} = tiles.get("{name}", max(1, {tile.number} // {others}))'
            case _:
                assert_never(tile.policy)

    def limit(self, tile: Tile, launch: Launch) -> str:
        """The size of a LIMITED tile: its number, or as many cells as cover its loop if that is fewer."""
        whole = next(lengths_covered(tile, launch), Dim.of(1))
        if whole.constant is None:
            return f"min({tile.number}, max({WARP}, triton.next_power_of_2({self.dim(whole)})))"
        return str(min(tile.number, max(WARP, 1 << (whole.constant - 1).bit_length())))

    def twice(self, tile: Tile, launch: Launch, tiles: Sequence[Tile]) -> str:
        """The factor 1 or 2 of a tile that is twice as large for the longest rows; "" for other tiles."""
        if not tile.doubled_from:
            return ""
        led = "ALIGN == 1 and " if is_led(tiles) else ""
        return f" * (2 if {led}{self.dim(length_of(tile, launch))} >= {tile.doubled_from} else 1)"

    def warps(self, printer: TritonPrinter) -> str:
        pieces = [tile for tile in printer.tiles if tile.policy is TilePolicy.OCCUPYING]
        alone = [tile for tile in pieces if any(lengths_covered(tile, printer.launch))]
        others = [tile for tile in printer.tiles if tile.policy is not TilePolicy.ALIGNMENT and tile not in pieces]
        cells = " * ".join(tile.name for tile in alone or others) or "1"
        if (one := printer.first_of(TilePolicy.GROWING)) is not None:
            led = one.lead_divisor > 1 and one.warps > OF_LED and is_led(printer.tiles)
            each = f"({one.warps} if ALIGN == 1 else {OF_LED})" if led else one.warps
            return f'tiles.get("num_warps", min(32, max(1, {one.name} // {each})))'
        if (one := printer.first_of(TilePolicy.KEPT)) is not None:
            return f'tiles.get("num_warps", min(8, max(1, {cells} // {one.warps})))'
        one = max(printer.tiles, key=lambda tile: tile.warps, default=None)
        if one is not None and one.warps > 0:
            led = one.lead_divisor > 1 and is_led(printer.tiles)
            each = f"{one.name} // {one.number // one.warps}" if one.doubled_from else f"{one.warps}"
            each = f"{each} if ALIGN == 1 else max(1, {one.name} // {OF_LED})" if led else each
            return f'tiles.get("num_warps", {each})'
        more = max([1, *(tile.warp_factor for tile in printer.tiles)])
        return f'tiles.get("num_warps", warps_of({f"{more} * " if more > 1 else ""}{cells}))'

    # Methods of SizeText.

    def operate(self, op: DimOp, left: str, right: str) -> str:
        """The text of a division, remainder, max or min. Python's division rounds down, as Dims do."""
        if op.kind in ("max", "min"):
            return f"{op.kind}({unwrap(left)}, {unwrap(right)})"
        step = op.right.constant
        if op.kind == "floordiv" and step and constant_in(op.left) == step - 1:
            return f"triton.cdiv({self.dim(op.left - (step - 1))}, {step})"
        return f"({as_operand(left)} {'//' if op.kind == 'floordiv' else '%'} {as_operand(right)})"

    def condition(self, expr: Expr) -> str:
        """The text of a condition on the sizes."""
        match expr:
            case Const(value):
                return str(value)
            case Index(dim):
                return as_operand(self.dim(dim))
            case Call("logical_not", (inner,)):
                return f"(not {self.condition(inner)})"
            case Call(("logical_and" | "logical_or") as word, (left, right)):
                return f"({self.condition(left)} {word.removeprefix('logical_')} {self.condition(right)})"
            case Call(function, (left, right)) if function in INFIX:
                return f"({self.condition(left)} {INFIX[function]} {self.condition(right)})"
            case _:
                raise UnsupportedError(f"triton has no spelling of {expr} where a launch is chosen")


def smaller(tile: Tile, tiles: Sequence[Tile], usual: str) -> str:
    """The usual size of a tile, or a part of it where rows do not begin at multiples of 16 bytes."""
    if tile.lead_divisor == 1 or not is_led(tiles):
        return usual
    return f"{usual} // (1 if ALIGN == 1 else {tile.lead_divisor})"


def is_of_several(printer: TritonPrinter) -> bool:
    """Whether a program reads rows of several arrays at once."""
    return any(tile.policy is TilePolicy.GROWING and tile.number > MOST_AT_ONCE for tile in printer.tiles)


def is_of_tiles(buffer: Buffer) -> bool:
    """Whether the size of a buffer depends on the tiles of a launch."""
    return any(name.startswith("$") for dim in buffer.shape for name in dim.names)


def conjunction(condition: Expr) -> list[Expr]:
    """The parts of a condition joined by `logical_and`."""
    match condition:
        case Call("logical_and", (left, right)):
            return [*conjunction(left), right]
        case _:
            return [condition]


def row_of(launch: Launch) -> Dim:
    """The begin of the rows that tiles of a launch begin before."""
    lets = [s.value for s in every_statement(launch.body) if isinstance(s, Let) and isinstance(s.value, Index)]
    return next(row for index in lets if (row := led_row(index)) is not None)


def length_of(tile: Tile, launch: Launch) -> Dim:
    """The length of the first loop that a tile covers; where it has only full tiles, of a loop of another tile."""
    return next((extent for each in (tile, *launch.tiles) for extent in lengths_covered(each, launch)), Dim.of(1))


def lengths_covered(tile: Tile, launch: Launch) -> Iterator[Dim]:
    """The lengths of the loops that a tile of a launch covers."""
    aligned = [one.size - 1 for one in launch.tiles if one.policy is TilePolicy.ALIGNMENT]
    for one, rest in tiles_covered(launch):
        if one == tile:
            left = rest.replace(dict(zip(("#lead",), aligned, strict=False)))
            loops = {name for name in left.names if name.startswith("#")}
            yield Dim(tuple((atoms, factor) for atoms, factor in left.terms if loops.isdisjoint(atoms)))
