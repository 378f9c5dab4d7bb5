"""A path of a model as an op in a separate file: its reference in NumPy, its captured inputs, and an initial kernel."""

import io
import os
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path as File
from string import Template

import numpy as np

from noyau.codegen.c import printer as c_printer
from noyau.codegen.c.spellings import TYPES
from noyau.codegen.numpy.printer import NumpyFunction, write
from noyau.codegen.numpy.terms import SizeText
from noyau.compiler.lowering.names import identifier
from noyau.compiler.lowering.nest import lower
from noyau.compiler.partition.def_use import DefUse
from noyau.compiler.passes.cleanup import drop_unused
from noyau.compiler.passes.normal_form import normalise, own_sizes
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.dtypes import DType
from noyau.errors import InputError, OutputError, SignatureError, UnsupportedError
from noyau.frontends import onnx as frontend
from noyau.hosts.onnxruntime.activations import capture_of, fault_at, look
from noyau.hosts.onnxruntime.inputs import model_inputs
from noyau.hosts.onnxruntime.model_files import save_files
from noyau.hosts.onnxruntime.path_ends import Between
from noyau.hosts.onnxruntime.source_model import SourceModel, open_model
from noyau.hosts.onnxruntime.subgraph import Path, path_between
from noyau.ir.graph import Graph
from noyau.ir.loops import Kernel, Role
from noyau.ir.walk import extent_of
from noyau.jobs.command_line import make_folder, require_writable
from noyau.kernels.c.parameters import RANGE
from noyau.signatures.types import parse
from noyau.text import package_text, printable
from noyau.version import __version__

WIDTH = 110  # of a line of the files
OUT = "out"  # the name of an op's only result
_HEAD = """The kernel that noyau generates for this path: the last function. Change it, or write another one.
Its parameters bear the names of the op's inputs, outputs, sizes and constants; arrays are packed, in C order."""
_PIECES = """
Each call is for the items from begin to end: disjoint pieces, in any order, on any threads."""
_PLAIN = Options(short=False, pairs=False)  # single rows instead of tiles, which are harder to edit
_ASKED = ("bind", "shape", "item_bytes")  # functions that only a runtime needs
_WHOLE = (*_ASKED, "extent", "scratch_bytes")


@dataclass(frozen=True, slots=True)
class Extraction:
    """A path as an op, before it is written. `graph`: its computation; `arrays`: its inputs, described by `notes`."""

    model: str
    path: Path
    graph: Graph
    arrays: Mapping[str, np.ndarray]
    notes: tuple[str, ...]

    def save(self, path: str | File, *, force: bool = False) -> tuple[File, ...]:
        """Write path.py, path.npz beside it, and path.c if a kernel could be generated: all of them, or none.

        The op has the name of the file. OutputError where a file exists (`force` replaces it) or cannot be written;
        UnsupportedError where the path cannot be written in NumPy."""
        file = File(path)
        require_room(file, force=force)
        contents = self.contents(file)
        save_files(contents, file)
        return tuple(contents)

    def contents(self, file: File) -> dict[File, bytes]:
        written = self.write(op_name(file))
        try:
            (kernel, launch), reason = start_of(self.graph, written), ""
        except UnsupportedError as error:
            kernel, launch, reason = "", "", str(error)
        text = self.text(written, file, reason, launch)
        files = {file: text.encode("ascii"), file.with_suffix(".npz"): self.pack(written)}
        return files if reason else files | {file.with_suffix(".c"): kernel.encode("ascii")}

    def write(self, name: str) -> NumpyFunction:
        """The reference as NumPy text. UnsupportedError where the path has no such text, or no signature."""
        ends = self.path.ends.sources
        others = [node.output for node in self.graph.inputs if node.output not in ends]
        written = write(self.graph, name, [*ends, *others])
        try:
            parse(self.signature(written), list(written.inputs.values()))
        except SignatureError as error:
            raise UnsupportedError(f"the path has no signature as an op: {error}") from error
        return written

    def signature(self, written: NumpyFunction) -> str:
        """The signature with the reference's names: `f32[batch, n], f32[n] -> f32[batch, n]`."""
        extents = SizeText(lambda name: written.sizes[name], set())

        def term(name: str) -> str:
            node = self.graph[name]
            return f"{node.dtype.value}[{', '.join(map(extents.text, node.shape))}]"

        names = (f"{each}: " if len(written.outputs) > 1 else "" for each in outputs_of(written).values())
        results = (f"{each}{term(name)}" for each, name in zip(names, written.outputs, strict=True))
        return f"{', '.join(map(term, written.inputs))} -> {', '.join(results)}"

    def pack(self, written: NumpyFunction) -> bytes:
        """The content of an .npz file of the arrays, by the names of the op's inputs."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, called in written.inputs.items():
                with archive.open(f"{called}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.ascontiguousarray(self.arrays[name]), allow_pickle=False)
        return buffer.getvalue()

    def text(self, written: NumpyFunction, file: File, unfused: str, launch: str = "") -> str:
        """The text of the op's file, by the template op.txt. `unfused`: why there is no kernel, or an empty text."""
        ends, names = self.path.ends, list(written.inputs.values())
        short = [called for name, called in written.inputs.items() if self.graph[name].dtype is DType.BF16]
        arrays = [f'arrays["{name}"]{".view(bfloat16)" if name in short else ""}' for name in names]
        imports = ["import noyau", "import numpy as np", *["from ml_dtypes import bfloat16"] * bool(short)]
        imports += [f"from noyau.functions import {', '.join(written.imports)}"] * bool(written.imports)
        model, script, kernel = (_comment(each)[2:] for each in (self.model, file.name, file.stem + ".c"))
        start = f"# {kernel} has the kernel that noyau generates; change it, or attach another one."
        if unfused:
            start = f"# No kernel could be generated ({_comment(unfused)[2:]}).\n# Attach one of your own:"
        far = f", launch={launch}" if launch else ""
        attach = f'{written.name}.kernel({_quote(file.stem + ".c")}, entry="{written.name}"{far})'
        texts = {"version": __version__, "name": _quote(self.model), "path": _quote(str(ends))}
        texts |= {"imports": "\n".join(sorted(imports, key=lambda line: (line.startswith("from"), line)))}
        texts |= {"sources": ", ".join(map(_quote, ends.sources)), "results": ", ".join(map(_quote, ends.results))}
        texts |= {"notes": "".join(f"    {_comment(note)}\n" for note in self.notes)}
        texts |= {"arrays": ", ".join(arrays) + "," * (len(arrays) == 1)}
        texts |= {"decorator": _decorator(self.signature(written)), "reference": written.text}
        texts |= {"start": start, "attach": f"# {attach}" if unfused else attach}
        texts |= {"script": f"{script}::{written.name}", "model": model}
        return Template(package_text("jobs/extract/op.txt")).substitute(texts)


def extract(
    model: str | File,
    between: Between,
    *,
    dims: Mapping[str, int] | None = None,
    inputs: str | File | None = None,
    seed: int = 0,
) -> Extraction:
    """Extract the path between some values of an ONNX model as an op, with its inputs captured in one run of the model.

    `dims`: sizes of the run; `inputs`: an .npz file of arrays instead of synthetic ones. ModelError where the file is
    no model, InputError where the ends enclose no graph or the model does not run, UnsupportedError for a path with an
    operator that is opaque to noyau."""
    original = open_model(File(model), flat=True)
    path = path_between(original, between)
    graph = path_graph(wires_of(original), path)
    for strange in (node.output for node in graph.inputs if node.dtype is DType.OTHER):
        raise UnsupportedError(f"{printable(strange)} is of a type that no op takes")
    feeds = model_inputs(original.feed_model, [graph], dims or {}, inputs, seed)
    extraction = Extraction(original.name, path, graph, {}, ())
    extraction.write("path")  # refuse a path without text before the model runs
    names = [node.output for node in graph.inputs]
    flow = look(original, names, feeds.full, capture_of(original), feeds.made_up)
    for missing in (name for name in names if name not in flow.arrays):
        reason = fault_at(missing, flow.body_faults) or "the model does not run so far"
        raise InputError(f"{printable(missing)} could not be captured: {reason}")
    return replace(extraction, arrays={name: flow.arrays[name] for name in names}, notes=feeds.full.notes)


def op_name(file: File) -> str:
    """The name of the op in a file: the stem of the file as an identifier."""
    return identifier(file.stem)


def require_room(file: File, *, force: bool) -> None:
    """Check that the files of a path can be written; OutputError where one exists, or the folder cannot be created."""
    if file.suffix != ".py" or not file.stem:
        raise OutputError(f"{printable(str(file))} is not the name of a Python file: end it in .py")
    for place in (file, file.with_suffix(".npz"), file.with_suffix(".c")):
        if os.path.lexists(place) and not force:
            raise OutputError(f"{printable(str(place))} is there already: --force replaces it, or name another file")
        make_folder(file.parent)
        require_writable(place)


def wires_of(original: SourceModel) -> DefUse:
    return DefUse(frontend.partition_model(original.model, original.imported))


def path_graph(wires: DefUse, path: Path) -> Graph:
    """The graph of a path as in the model, from its sources, with sizes of its own."""
    read = frozenset(path.ends.sources)
    while True:
        collected = replace(wires.collect(path.positions, read), outputs=path.ends.results)
        graph = own_sizes(drop_unused(collected, inputs_too=True))
        loose = wires.loose(graph, path.positions)
        if not loose:
            return graph
        read |= loose


def _decorator(signature: str) -> str:
    """The decorator that makes an op of the function, on one line or several."""
    line, (inputs, _, results) = f'@noyau.op("{signature}", inputs=captured)', signature.partition(" -> ")
    lines = f'@noyau.op(\n    "{inputs}"\n    " -> {results}",\n    inputs=captured,\n)'
    return line if len(line) <= WIDTH else lines


def _quote(name: str) -> str:
    """A name of the model as an ASCII string literal of Python, with quotes escaped."""
    return '"' + ascii(name)[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'


def _comment(text: str) -> str:
    """A line of text as an ASCII comment."""
    return f"# {ascii(text)[1:-1]}"


def start_of(graph: Graph, written: NumpyFunction) -> tuple[str, str]:
    """The C text of a function `written.name` that computes the graph, with parameters named as in `written`; and the
    op's `launch=`, the extent of `begin` and `end`, as Python text, "" if the default is right.

    UnsupportedError, with the reason, where the path does not become one kernel."""
    kernel = schedule(lower(normalise(graph), f"{written.name}_generated"), _PLAIN)
    items = _items(graph, kernel, written)
    head = _HEAD if items is None else f"{_HEAD}{_PIECES}"
    text, _, _ = c_printer.source(kernel, head).partition(f"static const int32_t {kernel.name}_dtypes")
    gone = "|".join(_ASKED if items is None else _WHOLE)
    functions = re.compile(rf"static \w+ {kernel.name}_(?:{gone})\(.*?\n\}}\n\n", re.DOTALL)
    return f"{functions.sub('', text)}{_function(graph, kernel, written, in_pieces=items is not None)}\n", items or ""


def _items(graph: Graph, kernel: Kernel, written: NumpyFunction) -> str | None:
    """The extent of the kernel's range as text for `launch=`, "" if it is the first dim of the first output; None for a
    kernel of several launches, of a fixed number of items, or whose extent needs more than arithmetic."""
    extent, names = extent_of(kernel.launches[0]), set[str]()
    if len(kernel.launches) > 1 or extent.constant is not None or not extent.names <= written.sizes.keys():
        return None
    if graph[graph.outputs[0]].shape[:1] == (extent,):
        return ""
    text = SizeText(lambda name: written.sizes[name], names).text(extent)
    if re.search(r"\b(max|min)\(", text):
        return None
    parameters = ", ".join(sorted(written.sizes[name] for name in names))
    return f'"{text}"' if text.isidentifier() else f"lambda {parameters}: {text}"


def outputs_of(written: NumpyFunction) -> dict[str, str]:
    """The op's names of its results, by their names in the graph."""
    names = dict(written.outputs)
    return names if len(names) > 1 else dict.fromkeys(names, OUT)


def _function(graph: Graph, kernel: Kernel, written: NumpyFunction, *, in_pieces: bool) -> str:
    """The text of the function that runs each launch on all of its items, or, in pieces, the only launch on some."""
    outputs = outputs_of(written)
    known = {**written.inputs, **outputs, **{name: f"&{names}" for name, names in written.named.items()}}
    parameters = [
        *(f"const {TYPES[graph[name].dtype]} *{names}" for name, names in written.inputs.items()),
        *(f"{TYPES[graph[name].dtype]} *{names}" for name, names in outputs.items()),
        *(f"int64_t {names}" for names in written.sizes.values()),
        *(f"{TYPES[graph[name].dtype]} {names}" for name, names in written.named.items()),
        *(f"int64_t {place}" for place in RANGE if in_pieces),
    ]
    head, lines = f"int32_t {written.name}({', '.join(parameters)})", ",\n    ".join(parameters)
    head = head if len(head) <= WIDTH else f"int32_t {written.name}(\n    {lines}\n)"
    return "\n".join([head, "{", *(f"    {line}" for line in _body(kernel, known, written, in_pieces=in_pieces)), "}"])


def _body(kernel: Kernel, mapping: dict[str, str], written: NumpyFunction, *, in_pieces: bool) -> list[str]:
    scratch = [f"scratch_{k}" for k in range(len(kernel.of(Role.SCRATCH)))]
    sources = [buffer.source for buffer in (*kernel.of(Role.INPUT), *kernel.of(Role.OUTPUT))]
    for strange in (source for source in sources if source not in mapping):
        raise UnsupportedError(f"the kernel reads {strange}, which is no input of the op")
    sizes = [binding.size for binding in kernel.binding]
    unused = [f"(void){names};" for name, names in written.sizes.items() if name not in sizes]
    start = [*unused, f"const int64_t sizes[] = {{{', '.join(written.sizes[name] for name in sizes) or '0'}}};"]
    buffers = f"const void *buffers[] = {{{', '.join([*(mapping[source] for source in sources), *scratch])}}};"
    if in_pieces:
        call = "const noyau_call call = {(void *const *)buffers, sizes, 0};"
        return [*start, buffers, call, f"return {kernel.name}_run(&call, begin, end);"]
    taken = (f"{kernel.name}_scratch_bytes(sizes, {k})" for k in range(len(scratch)))
    start += [f"void *{name} = malloc((size_t){size} + 1);" for name, size in zip(scratch, taken, strict=True)]
    status = f"{' && '.join([*scratch, '1'])} ? NOYAU_OK : NOYAU_OUT_OF_MEMORY" if scratch else "NOYAU_OK"
    return [
        *start,
        buffers,
        f"int32_t status = {status};",
        f"for (int32_t launch = 0; launch < {len(kernel.launches)} && status == NOYAU_OK; launch++) {{",
        "    const noyau_call call = {(void *const *)buffers, sizes, launch};",
        f"    status = {kernel.name}_run(&call, 0, {kernel.name}_extent(sizes, launch));",
        "}",
        *(f"free({name});" for name in scratch),
        "return status;",
    ]
