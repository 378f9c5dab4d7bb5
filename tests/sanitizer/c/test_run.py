"""One run of a program: what it says, and what is said where it says nothing."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import CheckError, UnsupportedError
from noyau.sanitizer.c import run as c_run
from noyau.sanitizer.c.build import Source, build_program
from noyau.sanitizer.c.run import ArrayArgument, LaunchConfig, WorkSharing, run

TEXT = """
#include <unistd.h>
#include <sys/time.h>
void noyau_entry(void **a) {
    float *out = a[0];
    int n = *(long long *)a[1];
    double x = *(double *)a[2];
    if (n == 1) pause();
    if (n == 4) usleep(1200000);
    if (n == 2) _exit(9);
    out[0] = n + x;
}
"""
OUT = ArrayArgument("out", (2,), np.dtype("f4"), None, True)


@pytest.fixture(scope="module")
def program():
    return build_program(Source(TEXT, "c"))


def test_arrays_and_numbers_go_in_and_arrays_come_out(program):
    ran = run(program, [OUT, 3, 0.5], WorkSharing())
    assert ran.arrays is not None
    assert ran.arrays[0][0] == 3.5
    assert [(each.kind, each.name, each.offset, each.count) for each in ran.faults] == [("unwritten", "out", 4, 1)]


def test_one_that_waits_is_ended(program):
    with pytest.raises(CheckError, match="it waits and never ends"):
        run(program, [OUT, 1, 0.5], WorkSharing(), patience_s=0.1)


def test_where_others_compute_it_has_longer(program, monkeypatch):
    monkeypatch.setattr(c_run, "wait_factor", lambda: 100.0)
    assert run(program, [OUT, 4, 0.5], WorkSharing(), patience_s=0.1).arrays is not None


def test_one_that_leaves_without_a_word_is_told_of(program):
    with pytest.raises(CheckError, match=r"it ended its process \(status 9\): it says nothing"):
        run(program, [OUT, 2, 0.5], WorkSharing())


def test_what_the_runtime_cannot_do_is_told(program):
    with pytest.raises(UnsupportedError, match="more than 256 arguments"):
        run(program, [OUT, *range(300)], WorkSharing())


def test_a_launch_is_spelt_as_in_cuda():
    assert str(LaunchConfig((4, 1, 1), (64, 1, 1))) == "<<<4, 64>>>"
    assert str(LaunchConfig((4, 2, 1), (16, 16, 1), 99)) == "<<<(4, 2, 1), (16, 16, 1), 99>>>"
