from __future__ import annotations

import pytest

from noyau.sanitizer import records

ONE, TWO = "thread 0 of block 0", "thread 1 of block 0"


def test_the_earlier_access_is_above():
    assert records.race_drawing("s[0]", "numba_cuda", [TWO, ONE], [(25, "reads"), (9, "writes")]) == (
        "    thread 0 of block 0  thread 1 of block 0",
        " 9  writes s[0]",
        "    -------- no barrier in between ---------",
        "25                       reads s[0]",
    )


@pytest.mark.parametrize(
    ("language", "owners", "told"),
    [
        ("cuda", [ONE, TWO], "no barrier in between"),
        ("cuda", [ONE, "thread 0 of block 1"], "nothing orders the two"),
        ("numba", ["iteration 0", "iteration 1"], "nothing orders the two"),
    ],
)
def test_one_line_of_two_owners_and_what_is_missing(language, owners, told):
    head, line = records.race_drawing("c[0]", language, owners, [(7, "writes"), (7, "reads")])
    assert head.split("  ")[-1] == owners[0]
    assert line.startswith("7  reads c[0]")
    assert line.endswith(f"writes c[0]   <- {told}")


def test_what_is_between_the_two_by_chance():
    drawing = records.race_drawing(
        "s[0]", "c", ["thread 1", "thread 0"], [(9, "reads"), (5, "writes")], "whoever was first"
    )
    assert drawing[2] == "   -- whoever was first --"


@pytest.mark.parametrize(
    ("extent", "index", "told"),
    [
        (10, 10, ("x  [0 1 ... 9] 10", "               ^ it reads here")),
        (2, 5, ("x  [0 1] 5", "         ^ it reads here")),
        (10, -1, ("x  -1 [0 1 ... 9]", "   ^ it reads here")),
    ],
)
def test_a_cell_that_is_not_there(extent, index, told):
    assert records.outside_drawing("x", extent, index, "it", "reads") == told


@pytest.mark.parametrize(
    ("text", "language", "told"),
    [
        ("c[0] += 1", "numba_cuda", "cuda.atomic.add(c, 0, 1)"),
        ("h[b, i + 1] -= x[i]", "numba_cuda", "cuda.atomic.sub(h, (b, i + 1), x[i])"),
        ("peak[i] = max(peak[i], abs(x[j]))", "numba_cuda", "cuda.atomic.max(peak, i, abs(x[j]))"),
        ("peak[i] = max(peak[0], x[j])", "numba_cuda", ""),
        ("peak[i] = least(peak[i], x[j])", "numba_cuda", ""),
        ("c[0] *= 2", "numba_cuda", ""),
        ("c[0] = c[0] + 1", "numba_cuda", ""),
        ("if i < n: (", "numba_cuda", ""),
        ("count[0] += x[i] * 2;", "cuda", "atomicAdd(&count[0], x[i] * 2);"),
        ("count[b] -= n;", "cuda", "atomicAdd(&count[b], -(n));"),
        ("bins[k]++;", "cuda", "atomicAdd(&bins[k], 1);"),
        ("++bins[k];", "cuda", "atomicAdd(&bins[k], 1);"),
        ("n += 1;", "cuda", ""),
        ("c[0] += 1", "numba", ""),
    ],
)
def test_an_update_as_an_atomic(text, language, told):
    assert records.update_text(text, language) == told
