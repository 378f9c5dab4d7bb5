"""What is decided again, or takes long: no room, a cache that cannot be written, ops that decide anew."""

from __future__ import annotations

import errno
import threading
import warnings

import numpy as np
import pytest

import noyau
from noyau.errors import OutputError
from noyau.hosts.numpy import c_library as numpy_c_library
from noyau.kernels.programs import generate as programs_generate
from noyau.kernels.programs.generate import key_of, specialization_of
from noyau.ops.dispatch import choice
from noyau.signatures.instances import bind
from noyau.toolchain.c import compiler as c_compiler
from tests.ops.dispatch.ops import choose, horner_op, numbers, softmax_op, turned_op


@pytest.fixture(autouse=True)
def no_records(monkeypatch):
    monkeypatch.setattr(choice, "recall_winners", lambda description, wanted: ())


@pytest.fixture
def clock(monkeypatch):
    """The time by which choices are tried again, which a test alone moves."""
    now = [1000.0]
    monkeypatch.setattr(choice, "monotonic", lambda: now[0])
    return now


class Disk:
    """A disk on which no kernel in C can be built as long as `fault` says why; `built`: the languages of those that
    were."""

    def __init__(self, build):
        self.fault, self.build, self.built = errno.ENOSPC, build, []

    def __call__(self, made):
        if self.fault and made.language == "c":
            raise OutputError("cache cannot be written") from OSError(self.fault, "as the disk says")
        self.built.append(made.language)
        return self.build(made)


@pytest.fixture
def disk(monkeypatch):
    found = Disk(choice.build)
    monkeypatch.setattr(choice, "build", found)
    return found


def kernel(chosen, cells=10):
    return chosen.at(cells).kernel


@pytest.mark.parametrize("full", [errno.ENOSPC, errno.EDQUOT])
def test_what_there_was_no_room_for_is_tried_again(monkeypatch, clock, disk, full):
    """On a full disk the reference runs, with a warning; as soon as there is room again, the kernel does."""
    monkeypatch.setattr(programs_generate, "languages_on", lambda device: ("c",))
    op, x, disk.fault = softmax_op(), numbers(2, 3), full
    told = "softmax: c cannot be built now: cache cannot be written; reference runs instead, and after 30 s a call"
    with pytest.warns(RuntimeWarning, match=told), pytest.warns(noyau.ReferenceWarning) as seen:
        assert np.allclose(op(x).sum(-1), 1)
    assert {each.filename for each in seen} == {__file__}
    disk.fault = 0
    assert op.explain(x).kernel == "reference"
    assert op.calls.plain == ()  # no way is kept that would go round what is tried again
    clock[0] += choice.AGAIN_S + 1
    assert np.allclose(op(x).sum(-1), 1)
    assert op.explain(x).kernel == "c"
    assert len(op.calls.plain) == 1


@pytest.mark.parametrize("fault", [errno.EROFS, errno.EACCES])
def test_a_cache_that_cannot_be_written_at_all_is_remembered(monkeypatch, clock, disk, fault):
    monkeypatch.setattr(programs_generate, "languages_on", lambda device: ("c",))
    op, disk.fault = softmax_op(), fault
    with pytest.warns(noyau.ReferenceWarning, match="c: cache cannot be written"):
        op(numbers(2, 3))
    disk.fault = 0
    clock[0] += choice.AGAIN_S + 1
    assert op.explain(numbers(2, 3)).kernel == "reference"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_had_room_is_not_built_again(clock, disk):
    """Of two languages one was refused for lack of room: the other one is kept."""
    op = softmax_op()
    for _ in range(3):
        assert kernel(choose(op, numbers(2, 3))) == "numba"
        clock[0] += choice.AGAIN_S + 1
    assert disk.built == ["numba"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_two_sizes_of_a_key_wait_for_room_each(clock, disk):
    op = turned_op()
    first = choose(op, numbers(3))
    clock[0] += 1
    second = choose(op, numbers(7))
    assert choose(op, numbers(3)) is first
    clock[0] = first.until
    third = choose(op, numbers(3))
    assert third is not first
    assert list(op.calls.choosing.chosen.values()) == [[second, third]]


def test_a_fast_call_that_there_was_no_room_for_is_made_again_in_c(monkeypatch):
    """The kernel is there already, and the C that reads its arguments is not."""
    op, x, now = softmax_op(), numbers(2, 3), [1000.0]
    choose(op, x)
    monkeypatch.setattr(numpy_c_library.library, "make", lambda: numpy_c_library.open_texts(*numpy_c_library.FILES))
    monkeypatch.setattr(numpy_c_library, "monotonic", lambda: now[0])

    def full(*_):
        raise OutputError("no room") from OSError(errno.ENOSPC, "as the disk says")

    told = "noyau's own C, which .* cannot be built now: no room; Python reads them, and after 30 s a call tries again"
    with monkeypatch.context() as during:
        during.setattr(c_compiler, "compile_library", full)
        with pytest.warns(RuntimeWarning, match=told):
            made = [op(x), op(x)]
    assert op.calls.plain == ()
    assert op.calls.entries == {}
    now[0] += numpy_c_library.AGAIN_S + 1
    made += [op(x), op(x)]
    assert [type(fast_call).__name__ for fast_call in op.calls.plain] == ["builtin_function_or_method"]
    assert len({each.tobytes() for each in made}) == 1


def test_programs_are_kept_where_it_is_decided_anew(disk):
    """Each for the sizes that it is right for, in whichever order they come."""
    op, disk.fault = turned_op(), 0
    for n in (3, 7, 4, 7, 3, 5):
        op.calls.forget()
        assert np.array_equal(op(numbers(n)), op.reference(numbers(n)))
    assert disk.built == ["c", "c"]


def test_a_refusal_is_kept_for_its_sizes(disk):
    op, disk.fault = turned_op(), errno.EROFS
    choosing_of = op.calls.choosing

    def program(n):
        bound = bind(op.signature, [numbers(n)], {}, op.name)
        wanted = specialization_of(op.signature, bound, {})
        return choosing_of.program(wanted, key_of(wanted), "c")

    assert program(3) == "cache cannot be written"
    disk.fault = 0
    assert program(3) == "cache cannot be written"
    assert program(7)(numbers(7))[0].tolist() == (numbers(7) * 2).tolist()


class Heard:
    """A stderr that tells when a line was written."""

    def __init__(self):
        self.text, self.told = "", threading.Event()

    def write(self, text):
        self.text += text
        self.told.set()


def test_a_first_call_that_takes_long_says_so(monkeypatch):
    heard, real, op = Heard(), choice.build, softmax_op()
    monkeypatch.setattr(choice, "build", lambda made: heard.told.wait(30) and real(made))
    monkeypatch.setattr(choice.sys, "stderr", heard)
    monkeypatch.setattr(choice, "ALOUD_S", 0.05)
    for _ in range(2):
        assert kernel(choose(op, numbers(2, 3))) == "c"
    assert heard.text.startswith("noyau: the first call of softmax (")
    assert heard.text.endswith(") is making kernels for 0.05 s now\n")
    assert heard.text.count("\n") == 1


def test_a_long_first_call_names_the_sizes_that_loops_were_built_for(monkeypatch, capsys):
    said, real = [], choice.build

    class Timer(choice.Timer):
        def start(self):
            said.append(self.function)

    def built(made):
        said[0]()
        return real(made)

    monkeypatch.setattr(choice, "Timer", Timer)
    monkeypatch.setattr(choice, "build", built)
    choose(horner_op(), numbers(3, 4))
    told = " s now; its reference asks for the number of n: each step of a loop over it is built\n"
    assert capsys.readouterr().err.endswith(told)


def test_where_no_thread_can_be_started_a_first_call_goes_on(monkeypatch):
    class Timer(choice.Timer):
        def start(self):
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(choice, "Timer", Timer)
    assert kernel(choose(softmax_op(), numbers(2, 3))) == "c"


def rows_of_some(x):
    return x.max(-1)


def short_or_long(x):
    if x.shape[0] < 3:
        return np.array([float(v) for v in x], np.float32)  # what is not traced
    return x * 2


@pytest.mark.parametrize(
    ("function", "signature", "first", "then"),
    [
        (rows_of_some, "f32[n, m] -> f32[n]", (3, 0), (3, 4)),
        (short_or_long, "f32[n] -> f32[n]", (2,), (4,)),
        (lambda x: x[0] + x[1], "f32[n, m] -> f32[m]", (1, 3), (4, 3)),
    ],
)
def test_what_fails_at_some_sizes_is_tried_at_others_and_not_again_at_those(function, signature, first, then, tries):
    op = noyau.op(signature)(function)
    for _ in range(2):
        assert choose(op, np.ones(first, np.float32)).only.kernel == "reference"
    assert choose(op, np.ones(then, np.float32)).only.kernel == "c"
    assert choose(op, np.ones((*then[:-1], 9), np.float32)).only.kernel == "c"
    assert choose(op, np.ones(first, np.float32)).only.kernel == "reference"
    assert tries == ["c", "numba", "c"]


def test_what_fails_at_many_sizes_is_given_up(tries):
    @noyau.op("f32[n] -> f32[n]")
    def never(x):
        return np.array([float(v) for v in x[: len(x)]], np.float32)

    for n in range(2, 12):
        assert choose(never, numbers(n)).only.kernel == "reference"
    assert tries.count("c") == tries.count("numba") == choice.TRIES


def test_a_first_call_that_raises_says_nothing_of_the_reference_and_the_next_one_has_a_kernel():
    op = noyau.op("f32[n, m] -> f32[n]")(rows_of_some)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="zero-size array"):
            op(np.ones((3, 0), np.float32))
        assert op(np.ones((3, 4), np.float32)).tolist() == [1, 1, 1]
    assert choose(op, np.ones((3, 4), np.float32)).only.kernel == "c"


@pytest.fixture
def tries(monkeypatch):
    """The languages of what is generated."""
    made, real = [], choice.generate
    monkeypatch.setattr(choice, "generate", lambda *given: made.append(given[2]) or real(*given))
    return made
