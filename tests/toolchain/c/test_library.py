from __future__ import annotations

import weakref
from importlib.resources import files

import ml_dtypes
import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import BuildError, CheckError, InputError, UnsupportedError
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.c.library import Native, _split

HEADER = files("noyau").joinpath("codegen", "c", "noyau.h").read_text(encoding="ascii")

# Scaled row sums: out[r] = s * sum over c of x[r, c], in two launches with a scratch of partial sums.
KERNEL = """
static int32_t bind(const int64_t *const *shapes, int64_t *sizes) {
    sizes[0] = shapes[0][0], sizes[1] = shapes[0][1];
    return shapes[1][0] == sizes[1] ? 0 : 2;
}
static void shape(const int64_t *sizes, int32_t output, int64_t *dims) { dims[0] = sizes[0] - LESS; }
static int64_t scratch_bytes(const int64_t *sizes, int32_t index) { return 4 * sizes[0]; }
static int64_t extent(const int64_t *sizes, int32_t launch) { return sizes[0] - LESS; }
static int64_t item_bytes(const int64_t *sizes, int32_t launch) { return 4 * sizes[1]; }
static int32_t run(const noyau_call *call, int64_t begin, int64_t end) {
    float *x = call->buffers[0], *w = call->buffers[1], *s = call->buffers[2];
    float *out = call->buffers[3], *partial = call->buffers[4];
    const int64_t rows = call->sizes[0], columns = call->sizes[1];
    for (int64_t r = begin; r < end && call->launch == 0; r++) {
        float total = 0;
        for (int64_t c = 0; c < columns; c++) total += x[r * columns + c] * w[c];
        partial[r] = total;
    }
    for (int64_t r = begin; r < end && call->launch == 1; r++) out[r] = s[0] * partial[r];
    if (call->launch == 1 && begin < end) { EXTRA; }
    return STATUS;
}
static const int32_t dtypes[] = {1, 1, 1, OUT}, ranks[] = {2, 1, 0, 1};
NOYAU_EXPORT const noyau_kernel row_sums_kernel = {
    "row_sums", 3, 1, 1, 2, 2, dtypes, ranks, bind, shape, scratch_bytes, extent, item_bytes, run,
};
"""


def build(extra: str = "", status: int = 0, less: int = 0, out: int = 1, text: str = KERNEL, name="row_sums") -> Native:
    for macro, value in (("EXTRA", extra), ("STATUS", status), ("LESS", less), ("OUT", out)):
        text = text.replace(macro, str(value)) if macro != "OUT" else text.replace(", OUT}", f", {value}}}")
    return Native(c_compiler.compile_library([HEADER + text]), f"{name}_kernel")


def arguments(rows: int = 5, columns: int = 7) -> list[np.ndarray]:
    rng = np.random.default_rng(rows * columns)
    return [rng.random(shape, np.float32) for shape in ((rows, columns), (columns,), ())]


def expected(x: np.ndarray, w: np.ndarray, s: np.ndarray) -> np.ndarray:
    return np.float64(s) * (x.astype(np.float64) @ w.astype(np.float64))


@pytest.fixture(scope="module")
def native() -> Native:
    return build()


def test_a_kernel_says_what_it_takes(native):
    assert (native.name, native.inputs, native.outputs, native.scratch, native.launches) == ("row_sums", 3, 1, 1, 2)
    assert native.dtypes == (DType.F32,) * 4
    assert native.ranks == (2, 1, 0, 1)


def test_a_bound_kernel_keeps_what_it_reads(native):
    given = [array.copy() for array in arguments()]
    kept = [weakref.ref(array) for array in given]
    run = native.bound(*given)
    del given
    assert all(each() is not None for each in kept)
    np.testing.assert_allclose(run()[0], expected(*arguments()), rtol=1e-5)


@pytest.mark.parametrize(("rows", "columns"), [(5, 7), (1, 1), (0, 3), (3, 0), (64, 33)])
def test_a_call_computes(native, rows, columns):
    given = arguments(rows, columns)
    for results in (native(*given), native.call_guarded(*given)):
        assert [result.dtype for result in results] == [np.dtype(np.float32)]
        np.testing.assert_allclose(results[0], expected(*given), rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("pieces", [1, 2, 3, 5, 100])
def test_bits_do_not_depend_on_pieces_order_or_threads(native, pieces, threads):
    given = arguments()
    whole = native(*given)[0].tobytes()
    for order in (
        range,
        lambda count: reversed(range(count)),
        lambda count: np.random.default_rng(3).permutation(count),
    ):
        assert native(*given, pieces=pieces, order=order, threads=threads)[0].tobytes() == whole
        assert native.call_guarded(*given, pieces=pieces, order=order)[0].tobytes() == whole


def test_pieces_run_in_the_order_asked(monkeypatch):
    native, seen = build(), []
    monkeypatch.setattr(native, "_piece", lambda call, span: seen.append((call.launch, *span)) or 0)
    native(*arguments(5, 2), pieces=2, order=lambda count: [1, 0])
    assert seen == [(0, 2, 5), (0, 0, 2), (1, 2, 5), (1, 0, 2)]


@pytest.mark.parametrize(("extent", "pieces"), [(10, 3), (3, 10), (1, 1), (0, 4), (7, 0), (2**40, 3)])
def test_pieces_cover_the_extent_once(extent, pieces):
    spans = _split(extent, pieces, range)
    assert [begin for begin, _ in spans] + [extent] == [0] * (extent > 0) + [end for _, end in spans] + [0] * (
        not spans
    )
    assert all(begin < end for begin, end in spans)
    assert len(spans) == min(max(pieces, 1), extent)


def test_inputs_that_are_not_packed_are_copied(native):
    x, w, s = arguments(6, 8)
    wide = np.zeros((8, 12), np.float32)
    wide[:, ::2] = x.T
    shifted = np.frombuffer(b"\0" + w.tobytes(), np.uint8)[1:].view(np.float32)
    assert not shifted.flags.aligned
    assert native._laid_out((x, shifted, s))[1].flags.aligned
    for result in (native(wide.T[::2], shifted, s), native(np.asfortranarray(x), w[::-1].copy()[::-1], s)):
        assert result[0].tobytes() == native(x, w, s)[0].tobytes()


def test_read_only_inputs_are_taken(native):
    given = arguments()
    for array in given:
        array.flags.writeable = False
    assert native(*given)[0].tobytes() == native.call_guarded(*given)[0].tobytes()


def test_out_is_written_and_returned(native):
    given, out = arguments(), np.full(5, np.nan, np.float32)
    assert native(*given, out=[out])[0] is out
    np.testing.assert_allclose(out, expected(*given), rtol=1e-5)


def test_out_that_does_not_fit_is_refused(native):
    given, good = arguments(), np.empty(5, np.float32)
    with pytest.raises(InputError, match="row_sums has 1 outputs, got 2 to write to"):
        native(*given, out=[good, good])
    frozen = np.empty(5, np.float32)
    frozen.flags.writeable = False
    for out in (np.empty(4, np.float32), np.empty(5), np.empty(10, np.float32)[::2], frozen):
        with pytest.raises(InputError, match=r"wants a writable, packed float32 of shape \(5,\) for output 0"):
            native(*given, out=[out])
    square = arguments(7, 7)
    with pytest.raises(InputError, match="cannot write output 0 over another array"):
        native(*square, out=[square[1]])


def test_inputs_that_do_not_fit_are_refused(native):
    x, w, s = arguments()
    with pytest.raises(InputError, match="row_sums takes 3 inputs, got 2"):
        native(x, w)
    with pytest.raises(InputError, match="wants float32 of rank 2 as input 0, got float64 of rank 2"):
        native(x.astype(np.float64), w, s)
    with pytest.raises(InputError, match="wants float32 of rank 0 as input 2, got float32 of rank 1"):
        native(x, w, s[None])
    with pytest.raises(InputError, match="wants float32 of rank 1 as input 1, got >f4 of rank 1"):
        native(x, w.astype(">f4"), s)
    with pytest.raises(InputError, match=r"the shape of input 1 does not fit, of the shapes \(5, 7\), \(6,\), \(\)"):
        native.call_guarded(x, w[1:], s)


def test_a_negative_shape_is_refused():
    with pytest.raises(InputError, match=r"output 0 would have the shape \(-1,\); give larger inputs"):
        build(less=3)(*arguments(2, 2))


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (1, InputError, "row_sums: an index is outside the axis"),
        (2, InputError, "not enough memory for its scratch"),
        (9, CheckError, "row_sums returned the status 9, which has no meaning"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_status_is_an_error(status, error, message, threads):
    with pytest.raises(error, match=message):
        build(status=status)(*arguments(), threads=threads)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("out[rows] = 1", "row_sums wrote outside output 0, 1 cells after its end"),
        ("out[-2] = 1", "row_sums wrote outside output 0, 2 cells before its start"),
        ("partial[rows] = 1", "row_sums wrote outside scratch 0, 1 cells after its end"),
        ("partial[-1] = 1", "row_sums wrote outside scratch 0, 1 cells before its start"),
        ("x[rows * columns + 3] = 0", "row_sums wrote outside input 0, 4 cells after its end"),
        ("x[2] += 1", "row_sums changed its input 0"),
        ("s[0] = -s[0]", "row_sums changed its input 2"),
        ("((uint32_t *)out)[1] = 0xFFC0DEAD", None),  # the bits of the first poison, but written
    ],
)
def test_what_a_kernel_touches_is_seen(extra, message):
    native, given = build(extra=extra), arguments()
    kept = [array.copy() for array in given]
    if message is None:
        assert np.isnan(native.call_guarded(*given)[0][1])
    else:
        with pytest.raises(CheckError, match=message):
            native.call_guarded(*given)
    assert all(np.array_equal(array, copy) for array, copy in zip(given, kept, strict=True))


def test_a_cell_that_is_never_written_is_seen():
    missed = KERNEL.replace("r < end && call->launch == 1; r++) out", "r < end - 1 && call->launch == 1; r++) out")
    with pytest.raises(CheckError, match=r"row_sums never wrote 2 cells of output 0; the first is \[1\]"):
        build(text=missed).call_guarded(*arguments(), pieces=2)


@pytest.mark.parametrize(("extra", "cell"), [("out[0] += 1", 0), ("if (end == rows) out[1] = 7", 1)])
def test_pieces_that_change_the_same_cell_are_seen(extra, cell):
    """As they run here, one after the other, nothing is wrong with them."""
    native = build(extra=extra)
    assert native.call_guarded(*arguments())
    with pytest.raises(CheckError, match=rf"two pieces of its work change output 0 at \[{cell}\]: on two threads they"):
        native.call_guarded(*arguments(), pieces=2)


def test_reading_beyond_an_input_gives_nan():
    beyond = KERNEL.replace("c < columns; c++) total", "c <= columns; c++) total")
    assert np.isnan(build(text=beyond).call_guarded(*arguments(1, 4))[0]).all()


def test_reading_scratch_before_it_is_written_gives_nan():
    early = KERNEL.replace("partial[r] = total", "(void)total")
    assert np.isnan(build(text=early).call_guarded(*arguments())[0]).all()


COPY = """
static int32_t bind(const int64_t *const *shapes, int64_t *sizes) { sizes[0] = shapes[0][0]; return 0; }
static void shape(const int64_t *sizes, int32_t output, int64_t *dims) { dims[0] = sizes[0]; }
static int64_t scratch_bytes(const int64_t *sizes, int32_t index) { return 0; }
static int64_t extent(const int64_t *sizes, int32_t launch) { return sizes[0]; }
static int64_t item_bytes(const int64_t *sizes, int32_t launch) { return 2 * SIZE; }
static int32_t run(const noyau_call *call, int64_t begin, int64_t end) {
    const char *x = call->buffers[0];
    char *out = call->buffers[1];
    for (int64_t i = SIZE * begin; i < SIZE * end; i++) out[i] = x[i];
    return NOYAU_OK;
}
static const int32_t dtypes[] = {TYPE, TYPE}, ranks[] = {1, 1};
NOYAU_EXPORT const noyau_kernel copy_kernel = {
    "copy", 1, 1, 0, 1, 1, dtypes, ranks, bind, shape, scratch_bytes, extent, item_bytes, run,
};
"""


@pytest.mark.parametrize(
    "dtype", [DType.F16, DType.BF16, DType.F64, DType.I8, DType.BOOL], ids=lambda dtype: dtype.value
)
def test_a_value_with_the_bits_of_a_poison_is_no_unwritten_cell(dtype):
    text = COPY.replace("SIZE", str(dtype.bytes)).replace("TYPE", str(dtype.onnx))
    native = build(text=text, name="copy")
    patterns = np.frombuffer(b"\xa5\x5a\x00\x01\xad\xde\xc0\xff" * 20, np.uint8)
    values = (patterns & 1 if dtype is DType.BOOL else patterns).view(dtype.numpy)
    assert native.call_guarded(values)[0].tobytes() == values.tobytes()


def test_a_type_that_no_buffer_has_is_refused():
    for number in (8, 0, 999):
        with pytest.raises(UnsupportedError, match=f"declares the ONNX element type {number}"):
            build(out=number)


def test_what_cannot_be_loaded_is_a_build_error(tmp_path):
    path = c_compiler.compile_library(
        [HEADER + KERNEL.replace("EXTRA", "").replace("STATUS", "0").replace("LESS", "0").replace("OUT}", "1}")]
    )
    with pytest.raises(BuildError, match=r"'other_kernel' of .* cannot be loaded: .*noyau cache --clear would do"):
        Native(path, "other_kernel")
    (tmp_path / "broken.so").write_bytes(path.read_bytes()[:100])
    with pytest.raises(BuildError, match=r"broken\.so cannot be loaded"):
        Native(tmp_path / "broken.so", "row_sums_kernel")


def test_bfloat16_arrays_are_taken():
    native = build(text=COPY.replace("SIZE", "2").replace("TYPE", "16"), name="copy")
    values = np.array([1.5, -np.inf, 3e38], ml_dtypes.bfloat16)
    assert native(values)[0].dtype == values.dtype
    assert native(values)[0].tobytes() == values.tobytes()
