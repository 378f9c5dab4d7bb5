"""Certificates in processes of their own, kept until anything changes."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from noyau.errors import CheckError
from noyau.jobs.optimize.onnx.candidates import activation_cases, certify_candidate
from noyau.jobs.optimize.pipeline import Candidate
from noyau.kernels import certificates
from noyau.kernels.certificates import CertificateTask, Certifiers, judge
from noyau.toolchain.c import compiler as c_compiler
from noyau.verify.adversarial import SMOKE
from tests.scenes import OPTIONS, scene, workers
from tests.small_models import CRASHES, HANGS, WRONG, spoilt

__all__ = ["scene", "workers"]


@pytest.fixture
def task(scene):
    """What a kernel of the scene is judged by; the kernel may be another."""

    def made(planned=None, **changes) -> CertificateTask:
        planned, first, seen = planned or scene[1][0], scene[1][0].groups[0], scene[2]
        captured, _ = activation_cases(planned, seen)
        library = c_compiler.compile_library([planned.text], OPTIONS)
        sizes = seen.sizes_of(first.original)
        whole = CertificateTask(planned.operator, library, first.original, first.graph, captured, sizes, 0, True)
        return dataclasses.replace(whole, **changes)

    return made


@pytest.fixture
def certifiers(workers):
    with Certifiers(workers.workers, 2) as made:
        yield made


def test_a_certificate_made_elsewhere_is_the_one_made_here(task, certifiers, empty_cache):
    assert certifiers.certificate(task()) == judge(task())


def test_it_is_made_once(task, certifiers, empty_cache, monkeypatch):
    first = certifiers.certificate(task())
    monkeypatch.setattr(Certifiers, "_judge", None)
    again = certifiers.certificate(task())
    assert again == first and again.ok and again.to_json() == first.to_json()


def test_a_wrong_one_is_kept_too(task, certifiers, scene, empty_cache):
    wrong = task(spoilt(scene[1][0], WRONG))
    first, again = (certifiers.certificate(wrong) for _ in "ab")
    assert not again.ok
    assert again.summary() == first.summary() == judge(wrong).summary()
    assert again.failures[0].cell == (0, 0)


@pytest.mark.parametrize("change", ["text", "graph", "constant", "captured", "sizes", "seed", "made_up", "code", "cpu"])
def test_another_key_where_anything_differs(change, task, scene, monkeypatch):
    one = task()
    other = one
    match change:
        case "text":
            planned = scene[1][0]
            other = task(dataclasses.replace(planned, text=planned.text + "\nint more;\n"))
        case "graph":
            other = task(original=scene[1][1].groups[0].original)
        case "constant":
            nodes = one.original.nodes
            constant = certificates.Constant(np.float32(2))
            changed = (dataclasses.replace(nodes[0], kind=constant), *nodes[1:])
            one = task(original=dataclasses.replace(one.original, nodes=changed))
            moved = certificates.Constant(np.nextafter(np.float32(2), np.float32(3)))
            changed = (dataclasses.replace(nodes[0], kind=moved), *nodes[1:])
            other = task(original=dataclasses.replace(one.original, nodes=changed))
        case "captured":
            case = one.captured[0]
            other = task(captured=[dataclasses.replace(case, inputs=(case.inputs[0] + 1,)), *one.captured[1:]])
        case "sizes" | "seed" | "made_up":
            other = task(**{change: {"sizes": {"rows": 3}, "seed": 1, "made_up": False}[change]})
        case "code":
            key = one.key
            monkeypatch.setattr(certificates, "_code", lambda names: "other")
            assert key != one.key
            return
        case "cpu":
            key, here = one.key, certificates.this_machine()
            monkeypatch.setattr(certificates, "this_machine", lambda: dataclasses.replace(here, cpu="another"))
            assert key != one.key
            return
    assert one.key != other.key
    assert one.key == dataclasses.replace(one).key


@pytest.mark.parametrize(
    ("ending", "reason"),
    [(CRASHES, r"process crashed \(SIG(ILL|TRAP)\)"), (HANGS, r"process did not answer within 3 s and was ended")],
)
def test_a_kernel_that_crashes_or_hangs_is_isolated(ending, reason, task, scene, certifiers, empty_cache):
    certifiers.patience_s = 3.0
    with pytest.raises(CheckError, match=reason):
        certifiers.certificate(task(spoilt(scene[1][0], ending)))
    assert certifiers.certificate(task()).ok


def test_a_crash_is_a_reason_and_no_certificate(scene, certifiers, empty_cache):
    spoiled = spoilt(scene[1][0], CRASHES)
    one = certify_candidate(Candidate(spoiled), scene[2], OPTIONS, 0, certifiers.certificate)
    assert one.certificate is None
    assert one.reason.startswith("cannot be checked: ")
    assert "process crashed" in one.reason


def test_several_at_once_come_in_their_order(certifiers):
    assert list(certifiers.each(lambda number: number * 2, range(5))) == [0, 2, 4, 6, 8]


def test_more_processes_are_started_where_there_are_cores(workers):
    with Certifiers(workers.workers, 3) as made:
        assert (len(made.more), made.count) == (1, 3)
    with Certifiers(workers.workers, 0) as made:
        assert (made.more, made.count) == ([], 1)


@pytest.mark.parametrize(("ok", "alike", "tried"), [(False, True, 1), (True, True, 1), (True, False, 2)])
def test_what_is_wrong_for_a_few_rows_is_wrong(ok, alike, tried, task, monkeypatch):
    made = []
    few = SimpleNamespace(graph=None, alike=alike)
    monkeypatch.setattr(certificates, "few_rows", lambda _: few)
    monkeypatch.setattr(certificates, "RepeatedRows", lambda *_: few)
    monkeypatch.setattr(certificates, "_judge", lambda *_: made.append(SimpleNamespace(ok=ok)) or made[-1])
    found = judge(task(captured=(), effort=SMOKE))
    assert found is made[-1] and len(made) == tried
