"""The page of an optimisation."""

from __future__ import annotations

import dataclasses

from noyau.compiler.partition.traffic import Traffic
from noyau.hosts.onnxruntime.write_back import put_back
from noyau.jobs.optimize.pipeline import BindingTiming, Candidate
from noyau.jobs.optimize.record import Evidence, KernelRecord, Report, record
from noyau.jobs.optimize.render import page
from noyau.jobs.show.model import show
from noyau.timing.verdict import Comparison, Verdict
from tests.jobs.report.samples import HOSTILE, MACHINE, hostile
from tests.small_models import twice, written


def report(folder) -> Report:
    """A report with the evidence of a small model, its kernels timed as twice as fast."""
    shown = show(written(twice(), folder))
    candidates = tuple(Candidate(each, kept=True) for each in shown.plan.kernels)
    after = put_back(shown.original.model, shown.plan.kernels, folder)
    evidence = Evidence(candidates, shown.original, shown.partition, shown.plan, after)
    kernels = tuple(
        dataclasses.replace(
            record(one), verdict=Verdict.FASTER, speedup=2.0, bytes=4096, error=1e-7, error_unfused=2e-7
        )
        for one in candidates
    )
    return Report(MACHINE, "small.onnx", 11, 6, kernels=kernels, evidence=evidence)


def sections(document, kind: str):
    return [each for each in document.sections if each["kind"] == kind]


def test_the_graph_is_there_before_and_after_with_the_kernels_in_both(tmp_path):
    document = page(report(tmp_path))
    before, after = sections(document, "graphs")[0]["drawings"]
    groups = [{each["group"] for each in drawing["nodes"] if each.get("group")} for drawing in (before, after)]
    assert groups[0] == groups[1] == set(document.sources)
    fused = next(each for each in after["nodes"] if each.get("group"))
    assert fused["tone"] == "good" and fused["source"] == fused["group"] and "FASTER 2.00x" in fused["lines"]
    assert fused["facts"]["error"] == "error 1e-7, unfused 2e-7" and fused["facts"]["bytes"] == "4 KiB"


def test_a_kernel_has_its_source_and_its_evidence(tmp_path):
    document = page(report(tmp_path))
    source = next(iter(document.sources.values()))
    assert "void" in source["text"] and "reads" in source["about"]


def test_the_headline_is_the_line_of_the_terminal(tmp_path):
    made = report(tmp_path)
    assert sections(page(made), "summary")[0]["headline"] in " ".join(str(made).split())


def test_a_record_without_evidence_has_a_page_too(tmp_path):
    document = page(hostile(HOSTILE[0]))
    assert sections(document, "table")[0]["rows"]
    hostile(HOSTILE[6]).save_html(tmp_path / "page.html")
    assert "srcdoc" in hostile(HOSTILE[0])._repr_html_()


def test_what_is_not_known_of_any_kernel_has_no_column():
    kernels = page(Report(MACHINE, "m", 1, 1, kernels=(KernelRecord("k", 1, ("Exp",), "c"),))).sections[1]
    (row,) = kernels["rows"]
    known = {
        "kernel": "k",
        "verdict": "-",
        "speedup": (None,) * 3,
        "places": 1,
        "outcome": "dropped: ",
        "replaces": ("Exp",),
    }
    assert dict(zip(kernels["columns"], row, strict=True)) == known


def test_a_timing_becomes_a_point(tmp_path):
    made = report(tmp_path)
    timing = BindingTiming({"rows": 5}, Comparison((2e-3,) * 10, (1e-3,) * 10), traffic=Traffic(4000, 96))
    candidates = tuple(dataclasses.replace(one, timings=(timing,)) for one in made.evidence.candidates)
    made = dataclasses.replace(made, evidence=dataclasses.replace(made.evidence, candidates=candidates))
    ((_, (point,)), *_) = sections(page(made), "sweeps")[0]["times"]
    assert (point.time_s, point.low_s, point.high_s, point.bytes_moved) == (1e-3, 1e-3, 1e-3, 4096)
    assert point.flops and point.flops > 0
