"""Each page of the gallery runs as it stands, and its report names the bug of the broken twin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "dlpack": ("10.0 False", "x is no array: list speaks neither DLPack nor Python's buffers"),
    "vector_sum": (
        "sums[simd]: right on",
        "right for every row of 1 to 64 cells",
        "sums[simd_without_rest]: wrong-value: wrong at out[0] for x: f32[1, 1]",
        "times as long as by_rows: its inner loop steps 8192 bytes",
    ),
    "dot_ladder": (
        "dot[chain]: right on",
        "dot64[lanes]: right on",
        "chain_in_float32 [c] is wrong: wrong at out[]",
        "python_loop [python]",
    ),
    "filter": ("clipped[select]: right on", "clipped[minimum]: wrong-value: ", "want nan", "branch: "),
    "random_sums": (
        "reproducible : 1 results in 100 orders, spread 0,",
        "total[any_order]: ",
        "order-dependent",
        "total[compensation_lost]: precision: wrong at",
    ),
    "matrix_product": (
        "product[ikj_i]: right on",
        "product_with_transposed[ijk_i]: right on",
        "product[ikj_k]: race: ",
        "product[kij_k]: race: ",
        "the reference is BLAS",
    ),
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_what_is_right_what_is_wrong_and_what_is_fast(page):
    path = ROOT / "examples" / "gallery" / f"plot_{page}.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    ran = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, env=environment, cwd=path.parent, check=False
    )
    assert ran.returncode == 0, ran.stderr
    said = " ".join(ran.stdout.split())
    assert [words for words in PAGES[page] if " ".join(words.split()) not in said] == []
