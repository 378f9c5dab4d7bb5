from __future__ import annotations

import numpy as np
import pytest

import noyau
from noyau.dtypes import DType
from noyau.jobs.bench.record import CELLS_A_THREAD, MOST, WARP, chosen_tiles, read_tiles, tilings


@noyau.op("float[n] -> float[n]")
def doubled(x):
    return x + x


def made():
    return doubled.generate("triton", [DType.F32], [1])


@pytest.mark.parametrize("cells", [1 << 12, 1 << 26])
def test_each_choice_is_by_the_rules_and_says_so(cells):
    found = tilings(made(), cells, 132)
    assert 0 < len(found) <= MOST
    for sizes, told in found:
        threads = WARP * sizes["num_warps"]
        program = np.prod([size for name, size in sizes.items() if name != "num_warps"])
        assert 128 <= threads <= 512
        assert CELLS_A_THREAD[0] <= program / threads <= CELLS_A_THREAD[1]
        assert f"{threads} threads, a multiple of 32 from 128 to 512" in told
        assert "blocks a multiprocessor" in told


def test_choices_that_leave_multiprocessors_idle_are_left_out_where_others_do_not():
    cells = 1 << 20
    for sizes, _ in tilings(made(), cells, 132):
        program = np.prod([size for name, size in sizes.items() if name != "num_warps"])
        assert cells / program / 132 >= 2


def test_what_has_no_tile_to_choose_has_no_choices():
    generated = made()
    names = {tile.name for tile in chosen_tiles(generated)}
    assert names
    for sizes, _ in tilings(generated, 1 << 24, 132):
        assert set(sizes) == {*names, "num_warps"}


def test_choices_are_read_back_from_a_candidate_s_name():
    assert read_tiles("generated triton (TILE=1024, num_warps=4)") == {"TILE": 1024, "num_warps": 4}
    assert read_tiles("generated triton") == {}
