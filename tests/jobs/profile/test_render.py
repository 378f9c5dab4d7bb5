from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from noyau.jobs.profile.record import NodeMemory
from tests.hosts.models import HOSTILE
from tests.jobs.profile.samples import NODES, OPERATORS, PATHS, at, profile


def shown(made, width=80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(made)
    return captured.get()


def test_a_profile_as_it_is_read():
    told = shown(profile())
    assert "Some CPU, 2 cores, x86-64-v3; onnxruntime 1.31.1, 1 thread" in told
    assert "A run with batch=1, sequence=128 takes 1 ms [900 us, 1.25 ms], 6% of it" in told
    assert "With the profiler on it takes 2 ms; what that adds is taken off below." in " ".join(told.split())
    assert "scaled" not in told
    rows = [line.split() for line in told.splitlines()]
    assert ["MatMul", "1", "600", "us", "60%", "600", "us"] in rows
    assert ["QuickGelu", "*", "1", "150", "us", "15%", "150", "us"] in rows
    assert ["(outside", "nodes)", "60", "us", "6%"] in rows
    assert ["sigmoid_0_abc", "2", "250", "us", "25%", "1", "MiB", "50", "us", "20%"] in rows
    assert ["exp_1_def", "1", "50", "us", "5%", "-", "-", "0%"] in rows
    assert "for Sigmoid, 2 Mul; onnxruntime runs QuickGelu, Mul\n" in told
    assert "for Exp\n" in told
    assert "for Neg, Abs; onnxruntime runs none of them\n" in told
    assert "* made by onnxruntime's optimizer of other nodes" in told
    assert "Fusing could gain at most 1.25x here: 30% of the run is in fusable paths" in told
    assert "outside of them are MatMul 60%, Reorder 4%." in " ".join(told.split())
    assert "at most 60 MiB as it runs, 70 MiB as it is opened; 3 MiB of weights" in " ".join(told.split())
    assert "h float[2, 128] 1 KiB, one of onnxruntime's own int64[] 8 B" in told
    assert told.endswith("Notes\n    ids i64[1, 128]: made up\n")


def test_several_sizes_have_a_column_each():
    told = shown(profile(1, 128))
    rows = [line.split() for line in told.splitlines()]
    assert ["Operator", "nodes", "sequence=1", "sequence=128"] in rows
    assert ["MatMul", "1", "600", "us", "60%", "600", "us", "60%"] in rows
    assert ["sigmoid_0_abc", "2", "250", "us", "20%", "250", "us", "20%"] in rows
    assert "Fusable path (gains)" in told
    assert "at most 1.25x with sequence=1:" in told
    assert "Memory with sequence=128: " in told
    assert told.count("ids i64[1, 128]: made up") == 1


def test_what_one_of_the_sizes_does_not_run_has_no_time():
    made = replace(profile(1), at=(at(1), at(128, operators=OPERATORS[1:])))
    assert ["MatMul", "1", "600", "us", "60%", "-"] in [line.split() for line in shown(made).splitlines()]


def test_the_top_is_shown_and_the_rest_added_up():
    told = shown(profile(top=2))
    assert "(3 more: --top)" in told
    assert ["(3", "more:", "--top)", "190", "us", "19%"] in [line.split() for line in told.splitlines()]
    assert "(1 more: --top)" in told
    assert "neg_2_eaf" not in told


@pytest.mark.parametrize("width", [20, 32, 40, 60, 80, 100, 200])
@pytest.mark.parametrize("sequences", [(128,), (1, 128, 1024)])
def test_no_line_is_longer_than_the_terminal(width, sequences):
    lines = shown(profile(*sequences), width).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert "1.25x" in " ".join(" ".join(lines).split())


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
def test_hostile_names_do_no_harm(name):
    made = replace(
        profile(),
        model=name,
        at=(
            at(
                sizes={name: 3},
                nodes=(replace(NODES[0], operator=name),),
                operators=(replace(OPERATORS[0], operator=name),),
                paths=(replace(PATHS[0], replaces=(name,), runs_as=(name,)),),
                notes=(name,),
            ),
        ),
    )
    assert shown(made, 300).replace("\n", "").isprintable()


def test_a_terminal_without_letters_beyond_ascii():
    console = Console(file=io.TextIOWrapper(io.BytesIO(), "ascii"), width=80, color_system=None)
    with console.capture() as captured:
        console.print(replace(profile(), model="mod\u00e8le.onnx"))
    assert captured.get().startswith("mod\\xe8le.onnx: ")


def test_a_model_without_paths_says_so():
    told = shown(replace(profile(), at=(at(paths=()),)))
    assert "No fusable path: nothing in this model could become a kernel." in told
    assert "Fusing could gain nothing here." in told


def test_nothing_at_all_is_shown_too():
    """A model that onnxruntime computes as it opens it."""
    none = at(sizes={}, nodes=(), operators=(), paths=(), memory=NodeMemory(0), notes=(), run_s=0.0)
    told = shown(replace(profile(), at=(none,)))
    assert "0 run by onnxruntime" in told
    assert "A run takes " in told
    assert told.endswith("Memory: 0 B of weights in the file.\n")


def test_a_ceiling_that_is_too_high_to_tell():
    made = replace(profile(), at=(at(paths=(replace(PATHS[0], gain_s=0.999e-3),)),))
    assert "Fusing could gain more than 20x here" in shown(made)


def test_that_times_are_scaled_is_told():
    assert "All is scaled by 1.30, to add up to a run." in " ".join(
        shown(replace(profile(), at=(at(scaled=1.3),))).split()
    )
