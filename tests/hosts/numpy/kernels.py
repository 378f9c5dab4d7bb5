"""Fast calls to kernels of NumPy functions, through the whole chain: traced, lowered, scheduled, printed, built."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from noyau.codegen.c import printer as c_printer
from noyau.compiler.lowering.input_layouts import Layout, laid_out, strided_names
from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.dtypes import DType
from noyau.frontends.numpy.trace import follow
from noyau.hosts.numpy.fast_calls import Argument, FastCall
from noyau.ir.graph import Input, Node
from noyau.signatures.instances import instance_of
from noyau.signatures.types import parse
from noyau.toolchain.c import compiler as c_compiler


def fast_call_of(
    function: Callable[..., Any],
    signature: str,
    *,
    dtype: DType = DType.F32,
    layouts: Sequence[Layout] = (),
    **said: Any,
) -> FastCall:
    """The fast call of a function with a signature; `dtype` is what its families are, `said` goes to every Argument."""
    name = function.__name__.strip("<>")
    names = tuple(inspect.signature(function).parameters)
    read = parse(signature, names)
    dtypes = tuple(term.element if isinstance(term.element, DType) else dtype for term in read.inputs)
    instance = instance_of(read, dtypes, tuple(len(term.dims or ()) for term in read.inputs), ())
    inputs = [Node(value.name, Input(), (), value.dtype, value.shape) for value in instance.inputs]
    results = [Node(value.name, Input(), (), value.dtype, value.shape) for value in instance.outputs]
    graph = follow(function, inputs, results, {}).graph
    graph = replace(graph, nodes=(*inputs, *(node for node in graph.nodes if node.output not in names)))
    lie = [*layouts, *(Layout(),) * (len(inputs) - len(layouts))]
    memory = laid_out(graph, lie)
    strided = strided_names(memory, lie)
    kernel = schedule(lower(memory, f"fast_call_{name}", *([strided] if strided else [])))
    path = c_compiler.compile_library([c_printer.source(kernel)])
    ends = [
        Argument(value.dtype, len(value.shape), layout, **({} if value.shape else said))
        for value, layout in zip(instance.inputs, lie, strict=True)
    ]
    scalars = [value.scalar for value in instance.outputs]
    return FastCall(path, f"{kernel.name}_kernel", ends, scalars, name)
