"""An op as a function of DuckDB: its kernels and their caller as an extension in C, which the connection loads.

C code cannot access a connection of the Python package, but an extension gets the database when it is loaded."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from noyau.codegen.language import GENERATIONS
from noyau.compiler.lowering.input_layouts import PACKED
from noyau.compiler.passes.algebra import products_as_sums
from noyau.compiler.passes.rewrite import bind_graph
from noyau.dtypes import DType
from noyau.engines.derived import OpReduction, RowPlan
from noyau.engines.laws import is_near
from noyau.engines.sql.kernel_reduction import graphs_of, is_whole_sum
from noyau.errors import CheckError, InputError, SignatureError, UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.graph import Constant
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.loops import Role
from noyau.kernels.programs.generate import generate_from_graph
from noyau.kernels.programs.program import KernelStep, Program
from noyau.text import package_text
from noyau.toolchain.c import compiler
from noyau.verify.inputs import make_inputs

_TYPES = "bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64"
_NUMBERS = {DType(name): at for at, name in enumerate(_TYPES.split(), 1)}  # values of the enum duckdb_type
_UNSIGNED = {"allow_unsigned_extensions": True}
_TRIED = 257  # rows
_API = "v1.2.0"  # the oldest C API with aggregates; later ones are compatible
MOST, RANK = 64, 8  # limits of values of a program and their axes, as in extension.c


def load_function(connection: Any, name: str, plan: Any, others: Mapping[str, Any]) -> None:
    """Create a function in the database of a connection, after a check in a separate database. SignatureError for a
    reduction in Python, UnsupportedError where C kernels are impossible, InputError where the connection does not load
    extensions or the name exists, CheckError where the function is wrong."""
    if not isinstance(plan, OpReduction | RowPlan):
        remedy = f"write its folds as an op, or stream the rows: noyau.stream({name}, connection.sql('SELECT ...'))"
        raise SignatureError(f"{name}: DuckDB runs C, and its steps are Python: {remedy}")
    query = "SELECT count(*) FROM duckdb_functions() WHERE lower(function_name) = lower(?)"
    if connection.execute(query, [name]).fetchall()[0][0]:
        raise InputError(f"DuckDB has a function {name}, and replaces none: say another name=")
    try:
        text = extension_text(name, plan, others)
    except UnsupportedError as error:
        raise UnsupportedError(f"{name} is no function of DuckDB: {error}") from error
    entry = f"noyau_{name}".lower()
    built = compiler.shared_library([compiler.compile_object(f"#define ENTRY {entry}_init_c_api\n{text}")])
    ((platform,),) = connection.execute("PRAGMA platform").fetchall()
    fields = ["4", platform, _API, "1", "C_STRUCT", "", "", ""]  # DuckDB's metadata, stored in reverse order
    footer = b"".join(field.encode().ljust(32, b"\0") for field in reversed(fields)) + bytes(256)  # empty signature
    with tempfile.TemporaryDirectory(prefix="noyau-") as folder, duckdb.connect(config=_UNSIGNED) as trial:
        path = Path(folder) / f"{entry}.duckdb_extension"
        path.write_bytes(built.read_bytes() + footer)
        try:
            trial.execute(f"LOAD '{path}'")
            _try(trial, name, plan, others)
            connection.execute(f"LOAD '{path}'")
        except duckdb.Error as fault:
            remedy = f"open it by duckdb.connect(PATH, config={_UNSIGNED})"
            message = str(fault).split("\n", maxsplit=1)[0]
            raise InputError(f"this connection loads no extension, as {name} is one: {remedy}; {message}") from fault


def _try(connection: Any, name: str, plan: OpReduction | RowPlan, others: Mapping[str, Any]) -> None:
    """CheckError where the function differs on synthetic rows from the graph evaluated in float64."""
    whole, sizes = (plan.plan, plan.sizes) if isinstance(plan, OpReduction) else (plan, {})
    graph = bind_graph(whole.graph, others, {key: size for key, size in sizes.items() if key != whole.size})
    arrays = make_inputs(graph, {whole.size: _TRIED}, np.random.default_rng(0)).arrays
    rows = ", ".join(map(str, zip(*(array.tolist() for array in arrays.values()), strict=True))).replace(",)", ")")
    names = ", ".join(f"c{at}" for at in range(len(arrays)))
    got = connection.execute(f"SELECT {name}({names}) FROM (VALUES {rows}) AS t({names})").fetchall()
    (truth,) = evaluate(graph, arrays, wide=True).values()
    values = np.array([row[0] for row in got] if whole.is_map else got[0][0], graph[graph.outputs[0]].dtype.numpy)
    if not is_near(values, truth):
        raise CheckError(f"{name} is wrong in DuckDB, on {_TRIED} made-up rows: {values} is not {truth}")


def extension_text(name: str, plan: OpReduction | RowPlan, others: Mapping[str, Any]) -> str:
    """The C text of an extension with one function. UnsupportedError for types or results that DuckDB cannot have."""
    is_fold = isinstance(plan, OpReduction)
    graphs = (
        graphs_of(plan) if isinstance(plan, OpReduction) else (products_as_sums(bind_graph(plan.graph, others, {})),)
    )
    result = graphs[-1][graphs[-1].outputs[0]]
    shape = [dim.constant for dim in result.shape[0 if is_fold else 1 :]]
    if len(graphs[-1].outputs) != 1 or len(shape) > 1 or None in shape:
        raise UnsupportedError("it has not one result, a number or an array of some: make an op of each")
    dtypes = [node.dtype for node in (*graphs[0].inputs, result)]
    strange = next((dtype for dtype in dtypes if dtype not in _NUMBERS), None)
    if strange is not None:
        raise UnsupportedError(f"DuckDB has no {strange.value}")
    programs = [generate_from_graph(g, f"part{k}", [PACKED] * len(g.inputs), "c").program for k, g in enumerate(graphs)]
    size = plan.plan.size if isinstance(plan, OpReduction) else plan.size
    tables = [_table(*each, size) for each in zip(("step", "merge", "finish"), programs, strict=False)]
    types = ", ".join(str(_NUMBERS[dtype]) for dtype in dtypes[:-1])
    facts = [f'NAME "{name}"', f"AGGREGATE {int(is_fold)}", f"COLUMNS {len(dtypes) - 1}", f"COLUMN_TYPES {types}"]
    facts += [f"SUMS {int(is_fold and any(is_whole_sum(*fold) for fold in plan.folds))}"]
    facts += [f"RESULT_TYPE {_NUMBERS[dtypes[-1]]}", f"RESULT_CELLS {shape[0] if shape else 0}"]
    kernels = GENERATIONS["c"].printer([kernel for each in programs for kernel in each.kernels], f"{name} in DuckDB")
    frame = package_text("engines/sql/extension.c")
    return "\n\n".join([kernels, "\n".join(f"#define {fact}" for fact in facts), frame, *tables])


def _table(name: str, program: Program, size: str) -> str:
    """A program as C tables: its values (inputs, constants, results of kernels), and the operands of each kernel. The
    extent -1 stands for the number of rows. UnsupportedError where it needs a library call."""
    constants = [node for node in program.graph.nodes if isinstance(node.kind, Constant)]
    nodes = {node.output: node for node in [*program.graph.inputs, *constants]}
    places, lines, steps, values = dict[str, int](), list[str](), list[str](), list[str]()
    for step in program.steps:
        if not isinstance(step, KernelStep):
            raise UnsupportedError(f"it has a step that is no kernel: {step.reason}")
        nodes |= {output: step.graph[output] for output in step.graph.outputs}
        places = {output: at for at, output in enumerate(nodes)}
        ends = [places[each.source] for role in (Role.INPUT, Role.OUTPUT) for each in step.kernel.of(role)]
        lines.append(f"static const int32_t {name}_places_{len(steps)}[] = {{{', '.join(map(str, ends))}}};")
        steps.append(f"{{&{step.kernel.name}_kernel, {name}_places_{len(steps)}}}")
    for at, node in enumerate(nodes.values()):
        if isinstance(node.kind, Constant):
            cells = ", ".join(map(str, node.kind.value.tobytes()))
            lines.append(f"static _Alignas(64) unsigned char {name}_value_{at}[] = {{{cells}}};")
        data = f"{name}_value_{at}" if isinstance(node.kind, Constant) else "0"
        extents = ", ".join(str(-1 if dim == Dim.of(size) else dim.constant or 0) for dim in node.shape) or "0"
        values.append(f"{{{data}, {node.dtype.bytes}, {len(node.shape)}, {{{extents}}}}}")
    if len(nodes) > MOST or any(len(node.shape) > RANK for node in nodes.values()):
        raise UnsupportedError(f"it has {len(nodes)} values, and {MOST} are the most: make several ops of it")
    results = [list(nodes).index(output) for output in program.graph.outputs]
    counts = f"{len(nodes)}, {len(program.graph.inputs)}, {len(steps)}, {len(results)}"
    lines += [f"static const value {name}_values[] = {{{', '.join(values)}}};"]
    lines += [f"static const program_step {name}_steps[] = {{{', '.join(steps)}}};"]
    lines += [f"static const int32_t {name}_results[] = {{{', '.join(map(str, results))}}};"]
    lines += [f"static const program {name}_program = {{{name}_values, {name}_steps, {name}_results, {counts}}};"]
    return "\n".join(lines)
