"""The table of a kernel of CUDA for a runtime in C: it compiles alone, with any bytes as its code."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from noyau.codegen.cuda.printer import grid_text, require_architectures
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu.blocks import in_blocks
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.toolchain.c import compiler as c_compiler
from tests.jobs.check.groups import one_map, softmax


class Block(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int32) for name in ("threads", "rows", "blocks"))


class Code(ctypes.Structure):
    _fields_ = (("architecture", ctypes.c_int32), ("is_ptx", ctypes.c_int32), ("content", ctypes.c_void_p))


def kernel():
    return replace(in_blocks(lower(normalise(softmax()), "kernel")), name="softmax_1a")


def test_code_is_in_the_text_byte_for_byte():
    content = np.random.default_rng(0).integers(0, 256, 999, np.uint8).tobytes() + bytes(3) + b"0123"
    text = grid_text(kernel(), {"sm_90": content, "compute_120": b'.target "sm_120"'})
    text = text.replace("static const noyau_", '__attribute__((visibility("default"))) const noyau_')
    library = ctypes.CDLL(str(c_compiler.compile_library([text])))
    first, second = (Code * 2).in_dll(library, "softmax_1a_codes")
    assert (first.architecture, first.is_ptx, second.architecture, second.is_ptx) == (90, 0, 120, 1)
    assert ctypes.string_at(first.content, len(content)) == content
    assert ctypes.string_at(second.content) == b'.target "sm_120"'
    scheduled = kernel()
    blocks = (Block * len(scheduled.launches)).in_dll(library, "softmax_1a_blocks")
    assert {(each.threads, each.rows, each.blocks) for each in blocks} >= {(32, 8, 1), (256, 1, 8)}
    assert grid_text(scheduled, {"sm_90": b"x"}) == grid_text(scheduled, {"sm_90": b"x"})


def test_clusters_want_an_architecture_that_has_them():
    require_architectures(kernel(), ("sm_90", "sm_120", "compute_120"))
    wanted = r"^it runs on clusters of blocks, which sm_86 has not; --target sm_90 has$"
    with pytest.raises(UnsupportedError, match=wanted):
        require_architectures(kernel(), ("sm_86", "sm_90", "compute_90"))
    require_architectures(in_blocks(lower(normalise(one_map("exp", DType.F32)), "kernel")), ("sm_80",))
