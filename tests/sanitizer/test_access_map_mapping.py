from __future__ import annotations

from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np

from noyau.sanitizer.access_map import Owner, map_of_writes, svg
from noyau.sanitizer.records import WatchedMemory

TEXT = """\
k[2, 4]: who writes out[10]
  out[0..3]  block 0: threads 0..3
  out[4..7]  block 1: threads 0..3
  out[8]     nobody
  out[9]     block 1: thread 3, after 2 other threads"""


def traced(last, others=None, kept=0):
    found = np.array(last), np.array(others if others is not None else [0] * len(last))
    return SimpleNamespace(kept=kept, writers=lambda memory, cells, width: found)


def thread(number):
    return Owner(f"block {number // 4}", str(number % 4))


def drawn(last, others=None, shape=None, name="out", **options):
    memory = WatchedMemory(name, (len(last),) if shape is None else shape)
    return map_of_writes("k", "[2, 4]", "thread", thread, {0: memory}, traced(last, others), **options)


def test_runs_of_cells_as_text():
    assert str(drawn([0, 1, 2, 3, 4, 5, 6, 7, -1, 7], [0] * 9 + [2])) == TEXT


def test_rows_strides_and_one_owner():
    lines = str(drawn([0, 2, 1, 1, 1, 3], shape=(2, 3))).splitlines()
    assert lines[1:] == [
        "  out[0, 0..1]  block 0: threads 0..2 in steps of 2",
        "  out[0, 2]     block 0: thread 1",
        "  out[1, 0..1]  block 0: thread 1",
        "  out[1, 2]     block 0: thread 3",
    ]
    assert str(drawn([0], shape=())).endswith("out[()]  block 0: thread 0")
    assert str(drawn(list(range(0, 400, 4)) * 2, shape=(2, 100))).splitlines()[-1] == "  and 120 more lines"


def test_what_is_too_large_is_named():
    large = drawn([0] * 5000)
    assert large.left == ("out has 5000 cells, and a map draws 4096; run it on smaller arrays",)
    assert str(large) == "k[2, 4]: out has 5000 cells, and a map draws 4096; run it on smaller arrays"
    (told,) = drawn([0], is_cut=True).left
    assert told == "it writes more than 200000 times, which is too much for a map; run it on smaller arrays"
    assert drawn([-1, -1]).arrays == ()


def test_a_drawing_has_each_cell_and_names_that_are_no_markup():
    made = drawn([0, 5, -1, 5], [0, 1, 0, 0], name="<out>")
    tree = ElementTree.fromstring(svg([made]))
    kinds = [each.tag.rpartition("}")[2] for each in tree]
    assert kinds.count("rect") == 1 + 4 + 2  # the ground, the cells, the legend
    texts = [each.text for each in tree if each.tag.endswith("text")]
    assert texts == ["k[2, 4]: <out>[4]", "0", "1", "1", "block 0", "block 1"]
    frames = [each.get("stroke") for each in tree if each.get("stroke")]
    assert frames == ["#888", "#d00", "#888", "#888"]
    fills = [each.get("fill") for each in tree if each.get("stroke")]
    assert fills[1] == fills[3] != fills[0]
    assert fills[2] == "white"
