"""The function that a kernel is for its callers in language `triton`: sizes, results, tiles, launches in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, Op, product
from noyau.ir.loops import Axis, Buffer, Call, Const, Expr, Fold, Index, Kernel, Launch, Loop, Role
from noyau.ir.walk import every_expression, every_statement
from noyau.languages.spelling import closed, dim_text, opened
from noyau.languages.triton_expressions import constant_in, rounds_up
from noyau.languages.triton_launches import INDENT, Printer
from noyau.languages.triton_names import Variables
from noyau.languages.triton_tables import INFIX, TORCH
from noyau.schedules.grid_tiles import Tile, tile_of

INDEX_TYPE = '''def index_type(*tensors):
    """int64 where an offset into one of the tensors needs more than 31 bits."""
    reach = max(sum(abs(step) * (extent - 1) for step, extent in zip(t.stride(), t.shape)) for t in tensors)
    return tl.int64 if reach >= 2**31 - 2**20 else tl.int32'''
STEP_OF = '''def step_of(size):
    """The largest power of two up to 16 that divides a size."""
    return 16 if size % 16 == 0 else size & -size'''
WARPS_OF = '''def warps_of(cells):
    """How many warps a program of so many cells has."""
    return 4 if cells <= 8192 else 8 if cells <= 16384 else 16 if cells <= 32768 else 32'''


class Caller:
    """The Python function that launches a kernel on tensors."""

    def __init__(self, kernel: Kernel, printers: Sequence[Printer]) -> None:
        self.kernel, self.printers = kernel, printers
        self.names = Variables(kernel)
        self.words: dict[str, str] = {}
        self.ends = [buffer for buffer in kernel.buffers if buffer.role is not Role.SCRATCH]

    def text(self) -> str:
        inputs, outputs = (list(map(self.value, self.kernel.of(role))) for role in (Role.INPUT, Role.OUTPUT))
        lines = [*self.described(), *self.sizes(), *self.checks(), *self.packed(), *self.results()]
        lines.append(f"INDEX = index_type({', '.join(map(self.value, self.kernel.buffers))})")
        before = None
        for printer in self.printers:
            lines += self.launched(printer, before)
            before = printer.launch.when
        lines.append(f"return {', '.join(outputs)}")
        body = "\n".join(f"{INDENT}{line}".rstrip() for line in lines)
        return f"def {self.kernel.name}({', '.join([*inputs, '**tiles'])}):\n{body}"

    def value(self, buffer: Buffer) -> str:
        return self.names.value(buffer.name)

    def described(self) -> Iterator[str]:
        given = [f"{self.value(b)}: {b.dtype.value}[{', '.join(map(self.dim, b.shape))}]" for b in self.ends]
        count = len(self.kernel.of(Role.INPUT))
        yield f'"""{", ".join(given[:count])} -> {", ".join(given[count:])}'
        yield ""
        yield '`tiles` gives sizes of tiles, powers of two, and num_warps by name, in place of the usual ones."""'

    def sizes(self) -> Iterator[str]:
        """The sizes that the inputs give."""
        inputs = self.kernel.of(Role.INPUT)
        for binding in self.kernel.binding:
            buffer, name = inputs[binding.input], self.names.atom(binding.size)
            if binding.axis >= len(buffer.shape):
                yield f"{name} = {self.value(buffer)}.stride({binding.axis - len(buffer.shape)})"
                continue
            value = f"{self.value(buffer)}.shape[{binding.axis}]"
            if binding.offset != Dim.of(0):
                value = f"({value} - {closed(self.dim(binding.offset))})"
            yield f"{name} = {opened(value if binding.factor == 1 else f'{value} // {binding.factor}')}"

    def checks(self) -> Iterator[str]:
        """Shapes that the sizes do not fit are refused."""
        taken = {(b.input, b.axis) for b in self.kernel.binding if b.factor == 1 and b.offset == Dim.of(0)}
        for number, buffer in enumerate(self.kernel.of(Role.INPUT)):
            if any((number, axis) not in taken for axis in range(len(buffer.shape))):
                name = self.value(buffer)
                yield f"if tuple({name}.shape) != {self.shape(buffer)}:"
                told = f"{name} has shape {{tuple({name}.shape)}}, not {{{self.shape(buffer)}}}"
                yield f'{INDENT}raise ValueError(f"{told}")'
        for guard in self.kernel.guards:
            cells, left, right = map(self.dim, (guard.cells, guard.left, guard.right))
            yield f"if {closed(cells)} != 0 and {left} > {right}:"
            yield f'{INDENT}raise ValueError(f"{{{left}}} is more than {{{right}}}")'

    def packed(self) -> Iterator[str]:
        """Inputs that a kernel reads as packed."""
        for buffer in self.kernel.of(Role.INPUT):
            if buffer.strides is None and buffer.shape:
                yield f"{self.value(buffer)} = {self.value(buffer)}.contiguous()"
            elif buffer.strides is not None and buffer.layout == "inner":
                name = self.value(buffer)
                yield f"{name} = {name} if {name}.stride(-1) == 1 else {name}.contiguous()"

    def results(self) -> Iterator[str]:
        device = self.value(self.kernel.of(Role.INPUT)[0]) if self.kernel.of(Role.INPUT) else None
        if device is None:
            raise UnsupportedError(
                f"{self.kernel.name} has no inputs: language triton takes the device of the first one"
            )
        for buffer in self.kernel.buffers:
            if buffer.role is not Role.INPUT:
                made = f"torch.empty({self.shape(buffer)}, dtype={TORCH[buffer.dtype]}, device={device}.device)"
                yield f"{self.value(buffer)} = {made}"

    def shape(self, buffer: Buffer) -> str:
        dims = ", ".join(map(self.dim, buffer.shape))
        return f"({dims},)" if len(buffer.shape) == 1 else f"({dims})"

    # Launches.

    def launched(self, printer: Printer, before: Expr | None) -> Iterator[str]:
        """A launch, `before` which another one stands, or not."""
        launch, pad = printer.launch, ""
        if launch.when is not None:
            otherwise = before is not None and launch.when == Call("logical_not", (before,), DType.BOOL)
            yield "else:" if otherwise else f"if {opened(self.condition(launch.when))}:"
            pad = INDENT
        for tile in printer.tiles:
            yield from (f"{pad}{line}" for line in self.tile(tile, launch, printer.tiles))
        yield f"{pad}programs = {self.dim(product(loop.extent for loop in grid_of(launch)))}"
        sizes = [f"{size} // step_of({size})" if size in printer.stepped() else size for size in printer.sizes()]
        steps = [f"step_of({size})" for size in printer.stepped()]
        given = ", ".join([*printer.buffers(), *sizes, *steps, "INDEX", *(tile.name for tile in printer.tiles)])
        yield f"{pad}if programs > 0:"
        yield f"{pad}{INDENT}{printer.name}[(programs,)]("
        yield f"{pad}{INDENT}{INDENT}{given}, num_warps={self.warps(printer)}"
        yield f"{pad}{INDENT})"

    def tile(self, tile: Tile, launch: Launch, tiles: Sequence[Tile]) -> Iterator[str]:
        """The size of a tile."""
        name = tile.name
        self.words[str(tile.size)] = name
        match tile.how:
            case "is":
                values = ", ".join(str(tile.number * 2**k // 4) for k in range(5))
                yield f'{name} = tiles.get("{name}", {tile.number})  # or one of {values}'
            case "fits":
                extents = list(dict.fromkeys(self.dim(extent) for extent in covered_by(tile, launch)))
                most = extents[0] if len(extents) == 1 else f"max({', '.join(extents)})"
                yield f"{name} = min({tile.number}, triton.next_power_of_2(max(1, {most})))"
            case _:
                others = " * ".join(other.name for other in tiles if other.how != "shares")
                yield f'{name} = tiles.get("{name}", max(1, {tile.number} // {others}))'

    def warps(self, printer: Printer) -> str:
        cells = " * ".join(tile.name for tile in printer.tiles) or "1"
        told = [tile.warps for tile in printer.tiles if tile.warps]
        cells = f"2 * {cells}" if -1 in told else cells
        return f'tiles.get("num_warps", {max([0, *told]) or f"warps_of({cells})"})'

    # Sizes.

    def dim(self, dim: Dim) -> str:
        return opened(dim_text(self.with_ceilings(dim), self.word, self.operate))

    def with_ceilings(self, dim: Dim) -> Dim:
        """The Dim with a word for each (n - 1) // step + 1."""
        for atoms, factor in dim.terms:
            match atoms:
                case (Op("floordiv", left, right),) if factor == 1 and rounds_up(left, right, dim):
                    name = f"#ceiling {left} / {right}"
                    self.words[name] = f"triton.cdiv({self.dim(left + 1)}, {self.dim(right)})"
                    return dim - Dim(((atoms, factor),)) - 1 + Dim.of(name)
                case _:
                    pass
        return dim

    def word(self, name: str) -> str:
        return self.words[name] if name in self.words else self.names.atom(name)

    def operate(self, op: Op, left: str, right: str) -> str:
        """Python divides downwards, as Dims do."""
        if op.kind in ("max", "min"):
            return f"{op.kind}({opened(left)}, {opened(right)})"
        step = op.right.constant
        if op.kind == "floordiv" and step and constant_in(op.left) == step - 1:
            return f"triton.cdiv({self.dim(op.left - (step - 1))}, {step})"
        return f"({closed(left)} {'//' if op.kind == 'floordiv' else '%'} {closed(right)})"

    def condition(self, expr: Expr) -> str:
        """A bool of the sizes."""
        match expr:
            case Const(value):
                return str(value)
            case Index(dim):
                return closed(self.dim(dim))
            case Call("logical_not", (inner,)):
                return f"(not {self.condition(inner)})"
            case Call(("logical_and" | "logical_or") as word, (left, right)):
                return f"({self.condition(left)} {word.removeprefix('logical_')} {self.condition(right)})"
            case Call(function, (left, right)) if function in INFIX:
                return f"({self.condition(left)} {INFIX[function]} {self.condition(right)})"
            case _:
                raise UnsupportedError(f"triton has no spelling of {expr} where a launch is chosen")


def grid_of(launch: Launch) -> list[Loop]:
    """The loops on the grid."""
    found, body = list[Loop](), launch.body
    while body and isinstance(body[-1], Loop) and body[-1].axis is Axis.THREADS:
        found.append(body[-1])
        body = body[-1].body
    return found


def covered_by(tile: Tile, launch: Launch) -> Iterator[Dim]:
    """What a tile of a launch covers, or its tiles together do."""
    extents = [s.extent for s in every_statement(launch.body) if isinstance(s, Loop)]
    extents += [expr.loops[-1][1] for expr in every_expression(launch.body) if isinstance(expr, Fold)]
    for extent in extents:
        found = tile_of(extent)
        if found is not None and found[0] == tile and found[1] is not None:
            yield whole_of(found[1], tile)


def whole_of(rest: Dim, tile: Tile) -> Dim:
    """An extent, from what is left of it after some tiles."""
    kept = [(atoms, factor) for atoms, factor in rest.terms if not any(_is_loop(atom) for atom in atoms)]
    return Dim(tuple(kept))


def _is_loop(atom: object) -> bool:
    return isinstance(atom, str) and atom.startswith("#")
