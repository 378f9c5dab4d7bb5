from __future__ import annotations

import re

import numpy as np
import pytest

from noyau.codegen.c import printer as c_printer
from noyau.codegen.c.spellings import beside, pairs_of
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.dtypes import DType
from noyau.ir.loops import Axis, Loop
from noyau.ir.walk import every_statement
from noyau.toolchain.c.compiler import CompilerOptions as Build
from noyau.toolchain.c.compiler import compile_library
from noyau.toolchain.c.library import Native
from tests.codegen.kernels import kernel_of
from tests.compiler.schedules.groups import in_order, inputs_of, lowered
from tests.jobs.check.groups import swiglu

BF16 = DType.BF16


def native(options):
    kernel = schedule(lowered(swiglu(BF16)), options)
    return kernel, Native(
        compile_library([c_printer.source(kernel)], Build(export=True, extra=("-O1",))), "kernel_kernel"
    )


def test_cells_in_pairs_have_the_bits_of_single_ones():
    (made, pairs), (_, single) = native(Options()), native(Options(pairs=False))
    for columns in (1, 2, 15, 16, 255, 257, 1000):
        arrays = inputs_of(swiglu(BF16), {"rows": 3, "n": columns}, columns)
        arrays["gate"].view(np.uint16)[0, :: max(columns // 5, 1)] = 0x7F81  # a signalling NaN
        arrays["up"].view(np.uint16)[1, -1] = 0xFFFF
        given = in_order(made, arrays)
        (one,), (other,) = pairs.call_guarded(*given, pieces=2), single.call_guarded(*given)
        assert one.tobytes() == other.tobytes()


def test_two_neighbours_are_one_word():
    text = c_printer.source(schedule(lowered(swiglu(BF16))))
    assert re.search(r"const uint32_t gate_pair = noyau_pair\(&gate\[i1w \* 256 \+ i1h \* 2\]\);", text)
    assert "noyau_store_pair(" in text
    assert text.count("static inline uint32_t noyau_pair(") == 1
    assert "noyau_pair" not in c_printer.source(kernel_of("rotary_f16"))


def test_a_pair_begins_where_the_neighbour_after_it_is_there():
    kernel = schedule(lowered(swiglu(BF16)))
    inner = [s for s in every_statement(kernel.launches[0].body) if isinstance(s, Loop) and s.var.endswith("h")]
    memory = {buffer.name: buffer for buffer in kernel.buffers}
    loaded, stored = pairs_of(inner[-1], memory)
    assert [name for name, _ in loaded] == ["gate", "up"]
    assert len(stored) == 1
    assert beside(beside(stored[0], 1), -1) == stored[0]
    assert pairs_of(Loop("#i", inner[-1].extent, Axis.SERIAL, inner[-1].body), memory) == ([], [])


@pytest.mark.parametrize("value", [np.nan, np.inf, 3.0e38, 1e-40, -0.0, 1.00390625])
def test_both_cells_of_a_pair_are_rounded_alike(value):
    kernel, made = native(Options())
    arrays = {"gate": np.full((1, 16), 40, BF16.numpy), "up": np.full((1, 16), value).astype(BF16.numpy)}
    (got,) = made(*in_order(kernel, arrays))
    assert len(set(got.view(np.uint16).ravel().tolist())) == 1
