"""The text of kernels of every strategy, as committed; each is right, on a GPU or in Triton's interpreter.

`pytest tests/codegen/triton/test_printer_golden.py --update-golden` writes the texts anew: read the difference
before you
commit.
"""

from __future__ import annotations

import pytest

from noyau.codegen.triton import printer as triton_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu import rows
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.errors import CheckError, UnsupportedError
from tests.codegen.kernels import GOLDEN, LAYOUTS, MORE
from tests.compiler.schedules.groups import inputs_of
from tests.judged import Judge

REFUSED = [name for name, (graph, _) in {**GOLDEN, **MORE}.items() if name in ("scattered_rows", "scattered_cells")]
KEPT = [name for name in {**GOLDEN, **MORE} if name not in REFUSED]
SMALL = {"ROWS": 2, "BLOCK": 16, "SHARE": 16, "DOWN": 4, "ACROSS": 8}  # tiles, so that few cells are several
MANY = ("rotary", "rotary_f16", "transposed", "transposed_strided", "gathered", "product_backwards", "running_sum")


def kernel_of(name):
    graph, _ = {**GOLDEN, **MORE}[name]
    return on_gpu(lower(normalise(graph), name, LAYOUTS.get(name)))


@pytest.mark.parametrize("name", [name for name in GOLDEN if name not in REFUSED])
def test_the_text_is_that_committed(name, golden):
    golden(f"triton/{name}.py", triton_printer.together([kernel_of(name)], f"the kernel {name}"))


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_strategy_is_refused(name):
    with pytest.raises(UnsupportedError, match="no strategy for programs on a GPU scatters"):
        kernel_of(name)


def arrays_of(name, number):
    """The arrays that a kernel takes, and what judges its outputs, by their names."""
    graph, _ = {**GOLDEN, **MORE}[name]
    sizes = sorted({size for node in graph.inputs for dim in node.shape for size in dim.names})
    inputs = inputs_of(graph, dict.fromkeys(sizes, number), seed=number)
    constants = {node.output: node.kind.value for node in graph.nodes if hasattr(node.kind, "value")}
    given = {**constants, **inputs}
    return [given[node.output] for node in normalise(graph).inputs], Judge(graph, inputs)


def sizes_of(name):
    """Few cells for kernels of many programs: the interpreter takes a millisecond for each."""
    return {"many": (3,), "labels": (3, 17), "usual": (0, 3, 17)}[
        "many" if name in MANY else "labels" if name == "scattered_labels" else "usual"
    ]


def judged(name, sizes, text=lambda text: text):
    """The kernel, at these sizes, against the graph: in memory that is poisoned, between guard zones."""
    from noyau.hosts.torch.cuda.array_kernels import DeviceKernel
    from noyau.toolchain.triton import module as builder

    kernel, interprets = kernel_of(name), builder.interprets()
    for number in sizes if interprets else (3, 17, 33, 130):
        arrays, judge = arrays_of(name, number)
        for tiles in (SMALL,) if interprets else (SMALL, {}):
            results = DeviceKernel(text(triton_printer.together([kernel])), kernel, tiles=tiles).call_guarded(*arrays)
            for output, got in zip(normalise({**GOLDEN, **MORE}[name][0]).outputs, results, strict=True):
                assert judge.wrong(output, got) is None


@pytest.mark.parametrize("name", KEPT)
def test_its_numbers_are_right(name, monkeypatch):
    """With rows as one tile; and where there are rows, with those from 5 cells on in several."""
    kept, sizes = triton_printer.together([kernel_of(name)]), sizes_of(name)
    with monkeypatch.context() as several:
        several.setattr(rows, "KEPT", 4)
        if triton_printer.together([kernel_of(name)]) != kept:
            judged(name, [number for number in sizes if number > 4])
            sizes = [min(number, 5) for number in sizes]  # a tile of two rows, a second one, and a half
    judged(name, sizes)


@pytest.mark.parametrize("name", ["log_softmax_kept", "row_argmax"])
def test_rows_that_programs_share_are_right(name, monkeypatch):
    monkeypatch.setattr(rows, "SHORT", 0)
    judged(name, (17,))


@pytest.fixture
def _tiles_of_8_bytes(monkeypatch):
    monkeypatch.setattr(rows, "KEPT", 4)
    monkeypatch.setitem(SMALL, "BLOCK", 2)


@pytest.mark.usefixtures("_tiles_of_8_bytes")
def test_tiles_of_less_than_16_bytes_write_every_cell():
    judged("padded", (5,))


@pytest.mark.usefixtures("_tiles_of_8_bytes")
def test_a_text_that_leaves_cells_of_such_tiles_is_refused():
    """As texts once did: of a row that begins within 16 bytes, the tiles behind the first one wrote nothing there."""

    def mutant(text):
        whole = "(start < (lead + ALIGN - 1) // ALIGN * ALIGN)"
        assert whole in text
        return text.replace(whole, "(start < lead)")

    with pytest.raises(CheckError, match=r"padded never wrote \d+ cells of its output 0; the first is \["):
        judged("padded", (5,), mutant)
