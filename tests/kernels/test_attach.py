from __future__ import annotations

import math

import numpy as np
import pytest

import noyau
from noyau.errors import InputError, SignatureError, UnsupportedError
from noyau.kernels.attach import attach_text, line_of, read_text
from noyau.kernels.user_kernel import Usage
from tests.kernels.written import called, op_of, written

TEXT = "void f(const float *x, float *out, long n) { for (long i = 0; i < n; ++i) out[i] = x[i]; }"
CUDA_TEXT = "__global__ void f(const float *x, float *out, long n) { out[threadIdx.x] = x[threadIdx.x]; }"


@pytest.fixture
def op():
    return op_of("f32[n] -> f32[n]")


def refused(op, what, kind=SignatureError, **said) -> str:
    with pytest.raises(kind) as told:
        op.kernel(what, **said)
    assert not op.kernels
    return str(told.value)


def test_a_file_by_its_suffix_or_a_text_by_its_language(op, tmp_path):
    first = op.kernel(written(tmp_path, "f.c", TEXT))
    second = op.kernel(TEXT, language="c", name="second")
    third = op.kernel(written(tmp_path, "f.txt", TEXT), language="c", name="third")
    assert [kernel.text for kernel in (first, second, third)] == [TEXT] * 3
    assert [kernel.place for kernel in (first, second)] == [str(tmp_path / "f.c"), "a text"]


def test_a_text_is_placed_in_the_file_of_its_op(tmp_path):
    file = written(tmp_path, "f.py", f'N = 1\nTEXT = """\n{TEXT}"""\n')
    target = op_of("f32[n] -> f32[n]").description.target
    kernel = attach_text(read_text(f"\n{TEXT}", "c", None, file, "op"), Usage(), target, None, ())
    assert (kernel.text, kernel.place, kernel.line) == (f"\n{TEXT}", str(file), 2)
    assert kernel.padded == f"\n\n{TEXT}"
    assert read_text("{ }", "c", None, file, "op").place == "a text"
    assert read_text("", "c", None, file, "op").place == "a text"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('x = 1\ny = """\nputs("a\\\\n");\n"""\n', 2),  # a literal with an escape
        ('x = """\\\nab\n"""\n', None),
        ('x = "\\nputs(\\"a\\\\n\\");\\n"\n', None),  # on one line, and the text has three
        ('x = """\nputs("a\\\\n");\n"""\n' * 2, None),
        ('x = "', None),
        ('# \nputs("a\\n");\n', 1),  # as it is
        ('# \nputs("a\\n");\n' * 2, None),
    ],
)
def test_a_text_is_found_where_its_file_has_it_once(source, line):
    assert line_of('\nputs("a\\n");\n', source) == line


def test_the_function_is_named_or_the_op_s_or_the_only_one(op):
    two = TEXT + TEXT.replace("void f", "void op")
    assert op.kernel(TEXT, language="c").entry == "f"
    assert op.kernel(two, language="c").entry == "op"
    assert op.kernel(two, language="c", entry="f", name="third").entry == "f"


@pytest.mark.parametrize("suffix", ["cpp", "cu"])
def test_texts_in_other_languages_are_kept(op, tmp_path, suffix):
    kernel = op.kernel(written(tmp_path, f"f.{suffix}", "__global__ void f(float *x) {}"), launch=(1, 32))
    assert kernel.language == {"cpp": "cpp", "cu": "cuda"}[suffix]
    assert kernel.usage.launch == (1, 32)


def test_files_that_cannot_be_read(op, tmp_path):
    assert "nowhere.c cannot be read: No such file or directory; paths are from the op's own file" in refused(
        op, tmp_path / "nowhere.c", InputError
    )
    (tmp_path / "latin.c").write_bytes(b"/* \xe9 */" + TEXT.encode())
    assert "latin.c is not UTF-8 (byte 3); save it so" in refused(op, tmp_path / "latin.c", InputError)
    (tmp_path / "large.c").write_bytes(b" " * ((1 << 24) + 1))
    assert "a kernel has at most 16777216" in refused(op, tmp_path / "large.c", InputError)


def test_texts_that_cannot_be_told(op):
    assert "this is a text; say in which language" in refused(op, TEXT)
    assert "'f.rs' is no .c, .cpp or .cu; say language=" in refused(op, "f.rs")
    assert "there is no language 'rust'" in refused(op, TEXT, UnsupportedError, language="rust")
    assert "a text is in c, cpp, cuda; a numba kernel is attached as a function" in refused(op, TEXT, language="numba")
    assert "op: a text defines g, h; say which is the kernel with entry=" in refused(
        op, TEXT.replace(" f(", " g(") + TEXT.replace(" f(", " h("), language="c"
    )
    for text in ("int f;\n", ""):
        assert "op: a text defines no function; say which" in refused(op, text, language="c")
    assert "op[g] defines no function g; those it defines: f" in refused(op, TEXT, language="c", entry="g")


def test_options_of_c_are_flags(op):
    assert op.kernel(TEXT, language="c", options={"flags": ("-O1",)}).usage.options == {"flags": ("-O1",)}
    op = op_of("f32[n] -> f32[n]")
    assert "options= of op[f] has 'warps'; a kernel in C has flags" in refused(
        op, TEXT, language="c", options={"warps": 4}
    )
    for flags in ("-O1", ["rm -rf"], [3]):
        for language, text in (("c", TEXT), ("cuda", CUDA_TEXT)):
            told = refused(op, text, language=language, options={"flags": flags})
            assert "give a list of words that begin with -" in told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"warps": 4}, "options= of op[f] has 'warps'; in CUDA C++ there are flags, shared_bytes, cluster"),
        ({"cluster": 0}, "options= of op[f]: cluster is 0; give an integer from 1 on"),
        ({"cluster": -2}, "options= of op[f]: cluster is -2; give an integer from 1 on"),
        ({"cluster": "two"}, "options= of op[f]: cluster is 'two'; give an integer from 1 on"),
        ({"shared_bytes": -1}, "options= of op[f]: shared_bytes is -1; give an integer from 0 on"),
        ({"shared_bytes": 2.5}, "options= of op[f]: shared_bytes is 2.5; give an integer from 0 on"),
    ],
)
def test_options_of_cuda_are_flags_and_numbers_of_a_launch(op, options, told):
    assert refused(op, CUDA_TEXT, language="cuda", launch=(4, 32), options=options) == told
    taken = {"flags": ["-DN=1"], "shared_bytes": 0, "cluster": 2}
    kernel = op.kernel(CUDA_TEXT, language="cuda", launch=(4, 32), options=taken)
    assert kernel.usage.options == taken


def test_what_would_be_said_of_a_function_in_vain(op):
    told = refused(op, lambda x, out: None, name="f", launch=(1, 2))
    assert told == "launch= of op[f]: it is called as any function of Python is, without a grid; leave it out"
    told = refused(op, lambda x, out: None, name="f", options={"num_warps": 8})
    assert told == "options= of op[f]: only texts and kernels in Triton have some; give them to its decorator"


def test_a_name_is_taken_once(op):
    op.kernel(TEXT, language="c")
    with pytest.raises(SignatureError, match="op has a kernel f already; give another one with name="):
        op.kernel(TEXT, language="c")
    with pytest.raises(SignatureError, match="op has a kernel f already"):
        op.kernel(lambda x, out: None, name="f")


def test_how_many_parameters_a_function_has_says_whether_it_returns():
    op = op_of("f32[n], f32 -> low: f32[n], high: f32[n]", "x, by")
    for name, function, returns in [
        ("fills", lambda x, by, low, high: None, False),
        ("returns", lambda x, by: (x, x), True),
        ("defaults", lambda x, by, low, high, fast=True: None, False),
        ("unknown", math.hypot, False),
    ]:
        op.kernel(function, name=name)
        assert op.kernels[name].usage.returns is returns
    op.kernel(lambda x, by: None, name="said", returns=False)
    assert op.kernels["said"].usage.returns is False
    with pytest.raises(
        SignatureError, match=r"op\[odd\] takes 3 arrays \(x, by, low\), and the op has 2 inputs, 4 with"
    ):
        op.kernel(lambda x, by, low: None, name="odd")


def test_without_a_signature_only_what_returns_can_be_attached():
    @noyau.op
    def double(x):
        return x + x

    double.kernel(lambda x: x * 2, name="returned")
    with pytest.raises(SignatureError, match="double: its outputs cannot be allocated without a signature"):
        double.kernel(lambda x, out: None, name="filled", returns=False)
    with pytest.raises(SignatureError, match="cannot be allocated without a signature"):
        double.kernel(TEXT, language="c")


def test_where_a_function_stands(op):
    op.kernel(refused, name="here", returns=True)
    assert op.kernels["here"].place.endswith(f"test_attach.py:{refused.__code__.co_firstlineno}")
    assert "def refused" in op.source("here")
    op.kernel(math.sqrt, returns=True)
    assert "its source is not at hand" in op.source("sqrt")


def test_a_class_is_no_kernel(op):
    class Counter:
        def __call__(self, x, out): ...

    assert (
        refused(op, Counter)
        == "op[Counter] is a class; a kernel is a function: give one that makes what it needs of it"
    )


def test_a_constant_is_given_to_a_function_that_asks_for_it():
    """Numba knows no keyword-only parameters, and a kernel need not repeat the default that the op has."""
    op = op_of("f32[n] -> f32[n]", "x, *, eps=0.5")

    def positional(x, out, eps):
        out[...] = x + np.float32(eps)

    def by_name(x, scale, *, eps):
        return scale * (x + np.float32(eps))

    op.kernel(positional)
    op.kernel(by_name, constants={"scale": [1, 2]})
    x = np.ones(3, np.float32)
    for kernel in op.kernels.values():
        assert called(op, kernel, x)[0].tolist() == [1.5] * 3
        assert called(op, kernel, x, eps=2.0)[0].tolist() == [3.0] * 3


def test_what_nothing_gives_is_refused():
    op = op_of("f32[n] -> f32[n]", "x, *, eps=0.5")

    def asking(x, out, *, blocks):
        out[...] = x

    told = r"op\[asking\] takes blocks by name, and nothing gives it; say constants={'blocks': ...}, or give it a"
    with pytest.raises(SignatureError, match=told):
        op.kernel(asking)
    op.kernel(asking, constants={"blocks": 3})


def test_a_kernel_shows_itself_in_a_line():
    op = op_of("f32[n] -> f32[n]", "x")
    kernel = op.kernel("void f(const float *x, float *out, long n) {}", language="c", entry="f")
    assert repr(kernel) == "<kernel op[f] in c, a text>"
