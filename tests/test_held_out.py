"""Kernels that the checker had not seen when they were written: it finds the wrong ones and accuses no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import noyau
from noyau.ops.op_files import load_ops

FILES = sorted(Path(__file__).with_name("held_out").glob("*_kernels.py"))


@pytest.mark.long
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_wrong_ones_are_found_and_no_other_is_accused(file):
    kernels = [each for op in load_ops(str(file)) for each in noyau.check(op, generated=False).kernels]
    names = {each.name for each in kernels}
    assert len(names) >= 6
    assert all("_right" in name or "_wrong" in name for name in names)
    accused = {each.name for each in kernels if any(one.severity == "error" for one in each.findings)}
    assert accused == {name for name in names if "_wrong" in name}
    assert not any(each.unverified or each.skipped for each in kernels)


def test_there_are_forty():
    texts = "".join(file.read_text("utf-8") for file in FILES)
    assert len(set(re.findall(r"\b\w+_(?:right|wrong)\w*\b", texts))) >= 40
