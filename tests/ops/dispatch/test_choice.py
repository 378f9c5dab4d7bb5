from __future__ import annotations

import threading

import numpy as np
import pytest

import noyau
from noyau.errors import BuildError, UnsupportedError
from noyau.kernels import trust as kernels_trust
from noyau.kernels.programs import generate as programs_generate
from noyau.kernels.programs.generate import specialization_of
from noyau.ops.dispatch import choice
from noyau.ops.dispatch.choice import Selector, Winner, record, text_digest
from noyau.signatures.instances import bind
from noyau.toolchain.c import compiler as c_compiler
from tests.ops.dispatch.ops import choose, horner_op, linear_op, numbers, scale_op, softmax_op, turned_op

SCALE = "void scale(const float *x, float by, float *out, long n) { for (long i = 0; i < n; ++i) out[i] = x[i] * by; }"


@pytest.fixture(autouse=True)
def own_records(monkeypatch):
    kept: dict[str, object] = {}
    monkeypatch.setattr(choice, "recall_winners", lambda description, wanted: kept.get("winners", ()))
    return kept


def kernel(chosen, cells=10):
    return chosen.at(cells).kernel


def test_generated_kernels_are_the_default():
    chosen = choose(scale_op(), numbers(3), 2.0)
    assert kernel(chosen) == "c"
    assert chosen.only.reason == "generated; it passed its smoke certificate"
    assert chosen.rejected == ()


def test_a_trusted_kernel_comes_first_and_a_checked_one_after_the_generated():
    op = scale_op()
    op.kernel(SCALE, language="c", name="by_hand")
    chosen = choose(op, numbers(3), 2.0)
    assert kernel(chosen) == "c"
    assert dict(chosen.rejected)["by_hand"].startswith("it has not been checked yet")
    op.kernel(SCALE, language="c", name="trusted", trust=True)
    assert kernel(choose(op, numbers(3), 2.0)) == "trusted"


def test_a_checked_kernel_runs_where_nothing_is_generated(monkeypatch):
    checked = []
    monkeypatch.setattr(kernels_trust, "is_checked", lambda *_: bool(checked))

    @noyau.op("f32[n] -> f32[n]")
    def ordered(x):
        return np.sort(x)

    @ordered.kernel
    def by_python(x, out):
        out[:] = sorted(x)

    assert kernel(choose(ordered, numbers(5))) == "reference"
    checked.append(1)
    ordered.calls.forget()
    assert kernel(choose(ordered, numbers(5))) == "by_python"


def test_a_recorded_winner_runs_by_size(own_records):
    op = scale_op()
    op.kernel(SCALE, language="c", name="trusted", trust=True)
    c = Winner(10, "c", text_digest(op.generate("c").text), 1e-6, "2026-01-02")
    hand = Winner(1000, "trusted", text_digest(SCALE), 1e-6, "2026-01-02")
    reference = Winner(10**6, "reference", hand.text, 1e-6, "2026-01-02")
    own_records["winners"] = (c, hand, reference)
    chosen = choose(op, numbers(3), 2.0)
    assert [kernel(chosen, cells) for cells in (1, 50, 500, 10**6)] == ["c", "c", "trusted", "reference"]
    assert chosen.at(1).reason == "the fastest at 10 cells (1 us), timed on 2026-01-02"
    assert chosen.only is None


def test_a_winner_that_is_not_what_it_was_does_not_run(own_records):
    op = scale_op()
    op.kernel(SCALE, language="c", name="by_hand", trust=True)
    own_records["winners"] = tuple(
        Winner(cells, name, "other", 1e-6, "2026-01-02")
        for cells, name in ((1, "by_hand"), (2, "c"), (3, "gone"), (4, "reference"))
    )
    chosen = choose(op, numbers(3), 2.0)
    assert kernel(chosen) == "by_hand"
    rejected = dict(chosen.rejected)
    assert rejected["c"] == "its text has changed since it was timed"
    assert rejected["gone"] == "it won before, and is no kernel of the op any more"
    assert rejected["reference"] == "what it was faster than has changed since it was timed"


def test_a_failing_build_falls_back_and_is_remembered(monkeypatch):
    tries = []

    def failing(*_):
        tries.append(1)
        raise BuildError("no compiler here")

    monkeypatch.setattr(c_compiler, "compile_library", failing)
    monkeypatch.setattr(programs_generate, "languages_on", lambda device: ("c",))
    op = softmax_op()
    with pytest.warns(noyau.ReferenceWarning, match="c: no compiler here"):
        assert np.allclose(op(numbers(2, 3)).sum(-1), 1)
    op(numbers(2, 3))
    op(numbers(5, 3))
    assert len(tries) == 1


def test_a_program_is_certified_once_a_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tried = []
    real = choice.smoke
    monkeypatch.setattr(choice, "smoke", lambda *given: tried.append(1) or real(*given))
    for _ in range(2):
        assert kernel(choose(softmax_op(), numbers(2, 3))) == "c"
    assert len(tried) == 1


def test_a_wrong_program_does_not_run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    class Wrong:
        ok = False

        def summary(self):
            return "wrong at [0]"

    monkeypatch.setattr(choice, "smoke", lambda description, built: Wrong())
    chosen = choose(softmax_op(), numbers(2, 3))
    assert kernel(chosen) == "reference"
    assert dict(chosen.rejected)["c"] == "its smoke certificate failed: wrong at [0]"


def test_threads_that_call_first_together_build_once(monkeypatch):
    built, started = [], threading.Barrier(4)
    real = choice.build

    def counted(made):
        built.append(made)
        return real(made)

    monkeypatch.setattr(choice, "build", counted)
    op, results = softmax_op(), []

    def call():
        started.wait()
        results.append(op(numbers(3, 4)))

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(built) == 1
    assert all(result.tobytes() == results[0].tobytes() for result in results)


def test_records_are_read_from_disk(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    op = scale_op()
    bound = bind(op.signature, [numbers(3), 2.0], {}, op.name)
    wanted, text = specialization_of(op.signature, bound, {"shift": 0.0}), text_digest(op.generate("c").text)
    record(op.description, wanted, [Winner(3, "reference", text, 1e-6, "2026-01-02")])
    assert Selector(op.description).choose(wanted).at(3).kernel == "reference"


def test_what_a_reference_asks_of_sizes_makes_variants():
    turned = turned_op()
    for n in (3, 7, 4, 5, 3):
        assert np.array_equal(turned(numbers(n)), turned.reference(numbers(n)))
    (variants,) = turned.calls.choosing.chosen.values()
    assert len(variants) == 2


def test_a_loop_over_a_size_is_traced_for_each():
    horner = horner_op()
    for n, m in ((1, 3), (3, 5), (2, 2), (3, 9)):
        assert np.allclose(horner(numbers(n, m)), horner.reference(numbers(n, m)), rtol=1e-5)
    (variants,) = horner.calls.choosing.chosen.values()
    assert len(variants) == 3


def test_where_there_is_no_compiler_numba_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def failing(*_):
        raise BuildError("no compiler here")

    monkeypatch.setattr(c_compiler, "compile_library", failing)
    op = linear_op()
    given = [numbers(3, 4), numbers(4, 5), numbers(5)]
    for _ in range(2):
        assert np.allclose(op(*given), op.reference(*given), rtol=1e-5)
    told = op.explain(*given)
    assert told.kernel == "numba"
    assert ("c", "no compiler here") in told.rejected


def test_where_there_is_no_compiler_nothing_is_printed_for_one(monkeypatch):
    monkeypatch.setattr(choice, "generate", lambda description, wanted, language: printed.append(language))
    monkeypatch.setattr(c_compiler, "_find", lambda *_: None)
    op, printed = linear_op(), []
    bound = bind(op.signature, [numbers(3, 4), numbers(4, 5), numbers(5)], {}, op.name)
    wanted = specialization_of(op.signature, bound, op.calls.all({}))
    with pytest.raises(BuildError, match="no C compiler"):
        op.calls.choosing.generate(wanted, "c")
    op.calls.choosing.generate(wanted, "numba")
    assert printed == ["numba"]


def test_that_a_reference_cannot_be_traced_is_told_before_that_there_is_no_compiler(monkeypatch):
    monkeypatch.setattr(c_compiler, "_find", lambda *_: None)
    op = noyau.op("f32[n] -> f32[n]")(lambda x: x if float(x[0]) > 0 else -x)
    bound = bind(op.signature, [numbers(3)], {}, op.name)
    with pytest.raises(UnsupportedError, match="asks for the number in an array"):
        op.calls.choosing.generate(specialization_of(op.signature, bound, op.calls.all({})), "c")


def test_on_a_gpu_nothing_of_the_cpu_may_run(monkeypatch):
    op = scale_op()
    op.kernel(SCALE, language="c", entry="scale", trust=True)
    bound = bind(op.signature, [numbers(3), 2.0], {}, op.name)
    wanted = specialization_of(op.signature, bound, op.calls.all({}), "cuda:0")
    monkeypatch.setattr(choice, "build", lambda made: (_ for _ in ()).throw(BuildError("there is no CUDA device")))
    chosen = op.calls.choosing.choose(wanted)
    assert kernel(chosen) == "reference"
    assert dict(chosen.rejected) == {
        "scale": "it is in c, and the tensors lie on cuda:0",
        "triton": "there is no CUDA device",
        "cuda": "there is no CUDA device",
        "numba_cuda": "there is no CUDA device",
    }


def test_a_winner_on_a_gpu_has_its_tiles(own_records, monkeypatch):
    op = scale_op()
    bound = bind(op.signature, [numbers(3), 2.0], {}, op.name)
    wanted = specialization_of(op.signature, bound, op.calls.all({}), "cuda:0")
    monkeypatch.setattr(choice, "build", lambda made: choice.BuiltProgram(made, ()))
    monkeypatch.setattr(choice, "smoke_fault", lambda description, built: "")
    text = text_digest(op.generate("triton").text)
    own_records["winners"] = [Winner(8, "triton", text, 1e-5, "today", (("BLOCK", 2048), ("num_warps", 8)))]
    assert op.calls.choosing.choose(wanted).only.tiles == {"BLOCK": 2048, "num_warps": 8}
