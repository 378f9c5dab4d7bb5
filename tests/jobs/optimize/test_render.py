from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from noyau.jobs.optimize.pipeline import NOT_BUILT
from noyau.jobs.optimize.record import (
    BindingRecord,
    EndToEnd,
    ProductRecord,
    Report,
    UnfusedNodes,
    VariantRecord,
    WeightRecord,
)
from noyau.timing.conditions import Conditions
from noyau.timing.verdict import Latency, Verdict
from tests.jobs.report.samples import BARE, DROPPED, HOSTILE, KEPT, REPORT, hostile


def printed(report: Report, width: int = 100, *, colour: bool = False, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    console = Console(file=file, width=width, force_terminal=colour, color_system="truecolor" if colour else None)
    console.print(report)
    file.flush()
    return raw.getvalue().decode(encoding)


NARROW = """\
The whole model: 12.3 ms -> 10.1 ms, FASTER 1.22x; its outputs are within 3e-7
  of the largest
Fusing could gain about 1.31x here; 1.22x is reached.
Wrote fused.onnx and ./fused.so.

llama.onnx: 151 nodes before, 64 after; 1 of 3 kernels kept
A Processor 9000, 2 cores, x86-64-v3; gcc 12.2.0; onnxruntime 1.31.1

kernel           verdict            speed-up  GB/s  floor   error
sum_rsqrt_0       FASTER  4.90x [4.71, 5.02]    50    81%  1.2e-7     kept
max_exp_sum_1  AMBIGUOUS  1.01x [0.70, 1.30]     -      -     inf  dropped
sigmoid_2              -                   -     -      -       -  dropped
"""


def test_the_verdict_and_the_files_come_first_then_a_line_a_kernel_on_80_columns():
    text = printed(dataclasses.replace(REPORT, written="Wrote fused.onnx and ./fused.so."), 80)
    assert text.startswith(NARROW)
    legend, rest = text.removeprefix(NARROW).split("\n\n", 1)
    assert " ".join(legend.split()).startswith("speed-up: the time of a call before over that after")
    assert rest.startswith("What they replace\n    sum_rsqrt_0_3fa91c2b: 7 operators: Pow, ReduceMean, Add, Sqrt")
    assert "\n    sigmoid_2_00000000: 2 operators: Sigmoid, Mul\n      dropped: wrong at y[0, 3]: got 0\n" in rest
    assert "\nNot fused: 17 nodes\n   15  a product of matrices\n" in rest


@pytest.mark.parametrize(("width", "columns"), [(60, 3), (80, 5), (120, 7)])
def test_a_kernel_is_a_line_and_its_name_can_be_pasted(width, columns):
    lines = printed(REPORT, width).splitlines()
    head = next(line for line in lines if line.startswith("kernel "))
    assert head.split()[1:] == "places verdict speed-up GB/s floor error unfused".split()[-columns:] or columns < 7
    assert len(head.split()) == columns + 1
    row = next(line for line in lines if line.startswith("sum_rsqrt_0 "))
    assert "FASTER" in row and "4.90x [4.71, 5.02]" in row and row.endswith("kept")


def test_the_headline_is_the_verdict_in_one_line():
    told = "The whole model: 12.3 ms -> 10.1 ms, FASTER 1.22x; its outputs are within 3e-7 of the largest"
    assert REPORT.headline() == told


@pytest.mark.parametrize("width", [30, 60, 80, 100, 140, 200])
def test_no_line_is_wider_than_the_terminal(width):
    long = dataclasses.replace(KEPT, name="a_kernel_with_a_name_that_goes_on_and_on_and_on_0_3fa91c2b")
    text = printed(dataclasses.replace(REPORT, kernels=(long, DROPPED)), width)
    assert max(len(line) for line in text.splitlines()) <= width


def test_colours_say_nothing_that_words_do_not():
    coloured = printed(REPORT, colour=True)
    assert "\x1b[32mFASTER" in coloured
    assert "\x1b[33mAMBIGUOUS" in coloured
    assert "\x1b" not in printed(REPORT)


def test_a_model_without_kernels():
    assert printed(BARE).splitlines() == [
        "No kernel: nothing in this model could be fused.",
        "",
        "plain.onnx: 3 nodes before, 3 after",
        "A Processor 9000, 2 cores, x86-64-v3; gcc 12.2.0; onnxruntime 1.31.1",
    ]


def test_kernels_of_which_none_is_kept():
    report = dataclasses.replace(REPORT, kernels=(DROPPED,), end_to_end=EndToEnd())
    text = printed(report)
    assert "0 of 1 kernel kept" in text
    assert text.startswith("The whole model: as it was, for no kernel was kept.\n")
    text = printed(dataclasses.replace(report, kernels=(KEPT,)))
    assert text.startswith("The whole model: not timed.\n")
    assert "Fusing could gain about 1.31x here.\n" in text


def test_the_first_line_says_why_a_model_was_not_timed_or_is_as_it_was():
    untimed = EndToEnd(reason="own::F is no operator of plain onnxruntime")
    text = printed(dataclasses.replace(REPORT, end_to_end=untimed))
    assert text.startswith("The whole model: not timed: own::F is no operator of plain onnxruntime.\n")
    slower = EndToEnd(reason="the whole model is AMBIGUOUS: 0.89x")
    text = printed(dataclasses.replace(REPORT, kernels=(DROPPED,), end_to_end=slower))
    told = "The whole model: as it was, for no kernel was kept: the whole model is AMBIGUOUS: 0.89x."
    assert text.startswith(told)


def test_a_module_ran_in_torch():
    machine = dataclasses.replace(REPORT.machine, versions={**REPORT.machine.versions, "torch": "2.13.0"})
    told = printed(dataclasses.replace(REPORT, machine=machine))
    assert "; torch 2.13.0\n" in told and "onnxruntime" not in told.splitlines()[1]


def test_a_slower_model_is_said_to_be():
    slower = dataclasses.replace(REPORT, end_to_end=EndToEnd(1.0, 2.0, Verdict.SLOWER, 0.5))
    assert "The whole model: 1 s -> 2 s, SLOWER 0.50x" in printed(slower)


@pytest.mark.parametrize(
    ("apart", "told"),
    [
        (None, "FASTER 1.22x\n"),
        (0.0, "FASTER 1.22x; its outputs keep every bit\n"),
        (2.5e-7, "FASTER 1.22x; its outputs are within 2.5e-7 of the largest\n"),
        (float("inf"), "FASTER 1.22x; its outputs are not those it had, beyond rounding\n"),
    ],
)
def test_how_far_the_outputs_have_moved(apart, told):
    whole = dataclasses.replace(REPORT.end_to_end, apart=apart)
    assert told in printed(dataclasses.replace(REPORT, end_to_end=whole), 120)


def test_reasons_are_joined_ordered_and_bounded():
    groups = tuple(UnfusedNodes((f"n{k}",) * (k + 1), f"reason {k}") for k in range(20))
    lines = printed(dataclasses.replace(REPORT, not_fused=groups)).splitlines()
    shown = [line.split()[0] for line in lines if " reason " in line]
    assert shown == [str(20 - k) for k in range(12)]
    assert any(line.strip() == "36  for 8 more reasons; --json has all" for line in lines)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("width", [80, 140])
def test_hostile_names_are_text(name, colour, width):
    text = printed(hostile(name), width, colour=colour)
    innocent = printed(hostile("innocent"), width, colour=colour)
    assert not {"\r", "\u202e", "\ud800"} & set(text)
    assert {part.partition("m")[0] for part in text.split("\x1b")[1:]} <= {
        part.partition("m")[0] for part in innocent.split("\x1b")[1:]
    }
    if name.isprintable() and len(name) < 60:
        assert name in text


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
@pytest.mark.parametrize("width", [20, 80])
def test_letters_beyond_the_terminal_s_are_escaped(encoding, width):
    text = printed(hostile("d\u00e9j\u00e0_" + "\u4e2d" * 30), width, encoding=encoding)
    assert ("\\xe9" in text) == (encoding == "ascii")


def test_in_a_narrow_terminal_the_numbers_go_over_several_lines():
    lines = printed(REPORT, 30).splitlines()
    assert max(map(len, lines)) <= 30
    assert not any(line.endswith(" ") for line in lines)
    assert {"verdict", "speed-up"} <= set(" ".join(lines).split())


@pytest.mark.parametrize(
    ("ceiling", "told"), [(1.3, "1.22x is reached.\n"), (1.1, "1.22x is reached: more than the estimate, which")]
)
def test_more_than_the_estimate_is_said_to_be(ceiling, told):
    text = printed(dataclasses.replace(REPORT, ceiling=ceiling))
    assert f"Fusing could gain about {ceiling:.2f}x here; {told}" in text


def test_several_bindings_are_one_line_of_a_kernel_and_one_each_of_the_model():
    after = Latency(2e-3, 3e-3, 4e-3, 500.0)
    few, many = (
        BindingRecord(
            {"batch": 1, "sequence": n},
            verdict,
            ratio,
            ratio,
            ratio,
            before_s=s,
            after_s=s / ratio,
            latency_after=after,
        )
        for n, verdict, ratio, s in ((1, Verdict.SAME, 1.0, 1e-3), (128, Verdict.FASTER, 2.5, 5e-2))
    )
    kernel = dataclasses.replace(KEPT, bindings=(few, many))
    whole = dataclasses.replace(
        REPORT.end_to_end, bindings=(dataclasses.replace(few, ceiling=1.4), dataclasses.replace(many, ceiling=2.4))
    )
    told = printed(dataclasses.replace(REPORT, kernels=(kernel,), end_to_end=whole), 120)
    assert "1.00x to 2.50x" in told
    head, first, second, *_ = told[told.index("the whole model at") :].splitlines()
    assert head.split()[4:] == ["before", "after", "verdict", "could", "p50", "p90", "p99", "runs/s"]
    assert first.split() == "batch=1, sequence=1 1 ms 1 ms SAME 1.00x 1.40x 2 ms 3 ms 4 ms 500".split()
    assert second.split() == "batch=1, sequence=128 50 ms 20 ms FASTER 2.50x 2.40x 2 ms 3 ms 4 ms 500".split()
    narrow = printed(dataclasses.replace(REPORT, end_to_end=whole), 60)
    assert any(line.split()[:6] == "batch=1, sequence=128 50 ms 20 ms".split() for line in narrow.splitlines())


def test_kernels_that_do_not_build_are_in_the_first_lines():
    """As where the disk of the cache is full: the model is handed back, and the first lines say why."""
    kernels = tuple(dataclasses.replace(each, kept=False) for each in REPORT.kernels)
    full = dataclasses.replace(kernels[0], reason=f"{NOT_BUILT}: /cache cannot be written: No space left on device")
    told = printed(dataclasses.replace(REPORT, kernels=(full, *kernels[1:])))
    first = " ".join(told[: told.index("nodes before")].split())
    several = f"1 of {len(kernels)} kernels does not build: /cache cannot be written: No space left on device."
    assert several in first


def test_doubts_about_the_machine_are_told():
    calm = Conditions(None, 1e-4, 0.1, None)
    told = printed(dataclasses.replace(REPORT, conditions=(calm, dataclasses.replace(calm, load=99.0))))
    assert "The times are doubtful: other work ran, 99.0 processes on" in told


WEIGHTS = """\
Weights in few bits (auto, same-tokens): 1 of 2 products; the outputs move by 0.0023 of the largest; 0 of
  512 tokens flip, the least margin is 0.0012 of the largest; of 488 further tokens 2 flip.
product        shape        weights        speed-up   error (f32)         x 30        x 1000
up       1024 x 2752  4 bits, level  2.10x to 3.30x  0.076 (3e-7)  0.16 (4e-7)  0.048 (3e-7)
logits   1024 x 4096            f32
    4 bits: 3 of 512 tokens flip
"""


def test_products_with_weights_in_few_bits_are_a_table():
    bindings = tuple(BindingRecord({"n": 1}, Verdict.FASTER, ratio, ratio, ratio) for ratio in (3.3, 2.1))
    variant = VariantRecord("4 bits, level", (7.6e-2, 1.6e-1, 4.8e-2), bindings)
    up = ProductRecord("up", (1024, 2752), variant.variant, "", (3e-7, 4e-7, 3e-7), (variant,))
    logits = ProductRecord("logits", (1024, 4096), reason="4 bits: 3 of 512 tokens flip")
    weights = WeightRecord("auto", "same-tokens", (up, logits), 2.3e-3, 512, 0, 1.2e-3, 488, 2)
    assert WEIGHTS in printed(dataclasses.replace(BARE, weights=weights), 110)
    none = printed(dataclasses.replace(BARE, weights=WeightRecord("int4", "0.01", (), reason="[red]no")), 110)
    assert "Weights in few bits (int4, 0.01): none; [red]no.\n" in none
