"""The library that registers kernels with onnxruntime, on hand-written kernels of the ABI."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx import helper

from noyau.errors import BuildError, GraphError, InputError, MissingExtraError, ModelError
from noyau.hosts.onnxruntime import runs, sessions, write_back
from noyau.text import package_text
from noyau.toolchain.c import compiler as c_compiler
from tests.hosts.kernels import F32, I64, STAND_INS, Arrays, build_library, kernel_text, model_of, takes_bfloat16

MARK = 1000.0  # what a marked kernel adds, and its function body does not


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernels") / "kernels.so"
    build_library({f"{name}_1f": kernel_text(each.text, f"{name}_1f") for name, each in STAND_INS.items()}, path)
    return path


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with one kernel whose results tell that it ran."""
    path = tmp_path_factory.mktemp("marked") / "marked.so"
    build_library({"scale_add_1f": kernel_text(STAND_INS["scale_add"].text, "scale_add_1f", MARK)}, path)
    return path


def run(model: onnx.ModelProto, feeds: Arrays, library: Path | None = None, threads: int = 1) -> Arrays:
    return runs.run(sessions.open_session(model.SerializeToString(), library, threads=threads), feeds)


def scale_add(rows: int = 3) -> tuple[Arrays, np.ndarray]:
    """Arrays for scale_add, and its result."""
    feeds = STAND_INS["scale_add"].feeds(np.random.default_rng(0), rows)
    return feeds, feeds["x"] * feeds["w"] + feeds["s"]


@pytest.mark.parametrize("size", [0, 1, 3, 5000])
@pytest.mark.parametrize("name", [*sorted({*STAND_INS} - {"mixed"}), pytest.param("mixed", marks=takes_bfloat16)])
def test_a_model_gives_the_same_with_its_library_and_without(name: str, size: int, library: Path) -> None:
    feeds = STAND_INS[name].feeds(np.random.default_rng(size), size)
    wanted = run(STAND_INS[name].plain(), feeds)
    model = STAND_INS[name].fused(f"{name}_1f")
    for threads in (1, 2):
        for each in (library, None):
            found = run(model, feeds, each, threads)
            for output, value in wanted.items():
                assert found[output].dtype == value.dtype
                if value.dtype == np.float32:
                    assert_allclose(found[output], value, rtol=1e-5, atol=1e-3 if name == "total" else 1e-6)
                else:
                    assert_array_equal(found[output], value)


def test_the_kernel_runs_where_its_library_is(marked: Path) -> None:
    feeds, wanted = scale_add()
    model = STAND_INS["scale_add"].fused("scale_add_1f")
    assert_allclose(run(model, feeds)["out"], wanted, rtol=1e-5, atol=1e-6)
    assert_allclose(run(model, feeds, marked)["out"], wanted + MARK, rtol=1e-5)


def test_bits_do_not_depend_on_the_number_of_threads(library: Path) -> None:
    feeds = STAND_INS["total"].feeds(np.random.default_rng(1), 9000)
    model = STAND_INS["total"].fused("total_1f")
    found = {run(model, feeds, library, threads)["out"].tobytes() for threads in (1, 2, 3)}
    assert len(found) == 1


WAITS = """
/* out[i] = 1; the piece of cell 0 ends once all others have, or after ten seconds with 0. */
#include <stdatomic.h>
#include <time.h>
static atomic_int done;
static int32_t bind(const int64_t *const *shapes, int64_t *sizes) { return sizes[0] = shapes[0][0], 0; }
static void shape(const int64_t *sizes, int32_t output, int64_t *dims) { dims[0] = sizes[0]; }
static int64_t scratch_bytes(const int64_t *sizes, int32_t index) { return 0; }
static int64_t extent(const int64_t *sizes, int32_t launch) { return sizes[0]; }
static int64_t item_bytes(const int64_t *sizes, int32_t launch) { return 1 << 20; }
static int32_t run(const noyau_call *call, int64_t begin, int64_t end) {
    const time_t start = time(0);
    for (int64_t i = begin; i < end; i++) {
        while (i == 0 && atomic_load(&done) < call->sizes[0] - 1 && time(0) - start < 10) {}
        ((float *)call->buffers[1])[i] = i > 0 || atomic_load(&done) == call->sizes[0] - 1;
        if (i > 0) atomic_fetch_add(&done, 1);
    }
    return NOYAU_OK;
}
static const int32_t dtypes[] = {1, 1}, ranks[] = {1, 1};
const noyau_kernel NAME_kernel = {
    "NAME", 1, 1, 0, 1, 1, dtypes, ranks, bind, shape, scratch_bytes, extent, item_bytes, run,
};
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is no other thread on one core")
def test_a_thread_that_is_slow_keeps_no_piece_waiting(tmp_path: Path) -> None:
    """The other one takes what is left of its share."""
    build_library({"waits_1f": kernel_text(WAITS, "waits_1f")}, tmp_path / "waits.so")
    ends = [helper.make_tensor_value_info(name, F32, ["n"]) for name in ("x", "out")]
    model = model_of([helper.make_node("waits_1f", ["x"], ["out"], domain="noyau")], ends[:1], ends[1:])
    found = run(model, {"x": np.zeros(16, np.float32)}, tmp_path / "waits.so", threads=2)
    assert_array_equal(found["out"], np.ones(16, np.float32))


def test_an_operator_of_another_models_library_is_not_picked_up(marked: Path) -> None:
    feeds, wanted = scale_add()
    model = STAND_INS["scale_add"].fused("scale_add_2e")
    assert_allclose(run(model, feeds, marked)["out"], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif("x86-64" not in c_compiler.level(), reason="levels are those of x86-64")
@pytest.mark.parametrize(
    ("target", "cpu", "runs"), [(1, 1, True), (2, 1, False), (2, 2, True), (3, 2, False), (3, 3, True)]
)
def test_a_library_is_not_used_on_a_lesser_cpu(target: int, cpu: int, runs: bool, tmp_path: Path) -> None:
    names = ("x86-64", "x86-64-v2", "x86-64-v3")
    here = c_compiler.level()
    if here in names and target > names.index(here) + 1:
        pytest.skip(f"this machine is {here} and cannot run {names[target - 1]}")
    options = c_compiler.CompilerOptions(target=names[target - 1])
    text = kernel_text(STAND_INS["scale_add"].text, "scale_add_1f", MARK)
    build_library({"scale_add_1f": text}, tmp_path / "lesser.so", options, simulated_level=cpu)
    feeds, wanted = scale_add()
    found = run(STAND_INS["scale_add"].fused("scale_add_1f"), feeds, tmp_path / "lesser.so")
    assert_allclose(found["out"], wanted + MARK * runs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("version", "asked"), [("1.16.3", []), ("1.9.0", []), ("nonsense", []), ("0.5.0", [])])
def test_nothing_is_registered_with_an_older_onnxruntime(version: str, asked: list[int], library: Path) -> None:
    assert _asked_of(version, library) == asked


@pytest.mark.parametrize("version", ["1.17.0", "1.31.1", "1.100.0-dev", "2.0.0"])
def test_the_oldest_interface_is_asked_of_every_newer_onnxruntime(version: str, library: Path) -> None:
    assert _asked_of(version, library) == [17]


def _asked_of(version: str, library: Path) -> list[int]:
    """The interface versions that a library asks of an onnxruntime that calls itself so, and has none of them."""
    asked: list[int] = []
    text = ctypes.create_string_buffer(version.encode())
    api_type, version_type = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32), ctypes.CFUNCTYPE(ctypes.c_void_p)
    callbacks = api_type(asked.append), version_type(lambda: ctypes.addressof(text))
    base = (ctypes.c_void_p * 2)(*(ctypes.cast(each, ctypes.c_void_p) for each in callbacks))
    register = ctypes.CDLL(str(library)).RegisterCustomOps
    register.argtypes, register.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_void_p
    assert register(None, ctypes.addressof(base)) is None
    return asked


def test_the_library_exports_its_entry_alone(library: Path) -> None:
    loaded = ctypes.CDLL(str(library))
    assert loaded.RegisterCustomOps
    for hidden in ("take_1f_kernel", "noyau_kernels", "noyau_cpu_needs", "compute", "cpu_has_all"):
        assert not hasattr(loaded, hidden)


def test_an_input_that_does_not_fit_is_named(library: Path) -> None:
    feeds, _ = scale_add()
    session = sessions.open_session(STAND_INS["scale_add"].fused("scale_add_1f").SerializeToString(), library)
    with pytest.raises(InputError, match=r"noyau::scale_add_1f: input 1 of shape \[7\] does not fit"):
        runs.run(session, {**feeds, "w": np.ones(7, np.float32)})
    assert runs.run(session, feeds)["out"].shape == (3, 40)  # and the session still works


def test_an_input_of_another_rank_is_named(library: Path) -> None:
    value = helper.make_tensor_value_info("x", F32, None)
    out = helper.make_tensor_value_info("out", F32, None)
    node = helper.make_node("softmax_1f", ["x"], ["out"], domain="noyau")
    session = sessions.open_session(model_of([node], [value], [out]).SerializeToString(), library)
    with pytest.raises(InputError, match=r"noyau::softmax_1f: input 0 of shape \[5, 6\] does not fit"):
        runs.run(session, {"x": np.ones((5, 6), np.float32)})


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [3, 5000])
def test_an_index_out_of_bounds_is_an_error(count: int, threads: int, library: Path) -> None:
    feeds = STAND_INS["take"].feeds(np.random.default_rng(0), count)
    model = STAND_INS["take"].fused("take_1f").SerializeToString()
    session = sessions.open_session(model, library, threads=threads)
    for wrong in (50, -51, 2**62):
        ids = feeds["ids"].copy()
        ids[-1] = wrong
        with pytest.raises(InputError, match="noyau::take_1f: an index is out of bounds"):
            runs.run(session, {**feeds, "ids": ids})
    assert_array_equal(runs.run(session, feeds)["out"], feeds["table"][feeds["ids"]])


def test_a_session_may_run_in_several_threads_at_once(library: Path) -> None:
    names = ("total", "softmax")
    pairs = {
        name: [
            sessions.open_session(STAND_INS[name].fused(f"{name}_1f").SerializeToString(), library, threads=2)
            for _ in "ab"
        ]
        for name in names
    }

    def job(number: int) -> bool:
        name = names[number % 2]
        feeds = STAND_INS[name].feeds(np.random.default_rng(number), 10 + number)
        found = runs.run(pairs[name][number // 2 % 2], feeds)["out"]
        return np.allclose(found, run(STAND_INS[name].plain(), feeds)["out"], rtol=1e-5, atol=1e-3)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(job, range(60)))


def test_shapes_are_known_when_the_model_is_loaded(library: Path) -> None:
    stand_in = replace(STAND_INS["take"], inputs={"table": (F32, (9, 4)), "ids": (I64, (5,))})
    model = stand_in.fused("take_1f", with_body=False)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    session = sessions.open_session(model.SerializeToString(), library)
    assert session.get_outputs()[0].shape == [5, 4]


@pytest.mark.parametrize("extras", [["ids"], ["ids", "table", "ids"]])
def test_inputs_after_the_kernels_own_are_left_to_the_body(extras: list[str], library: Path) -> None:
    feeds = STAND_INS["take"].feeds(np.random.default_rng(0), 6)
    model = STAND_INS["take"].fused("take_1f", with_body=False)
    model.graph.node[0].input.extend(extras)
    assert_array_equal(run(model, feeds, library)["out"], feeds["table"][feeds["ids"]])


@pytest.mark.parametrize("name", ["", "a b", "a;", "1a", "a*/b", "a\nb", "\u00e9", "a" * 300, '"'])
def test_a_name_that_is_not_a_c_name_is_refused(name: str) -> None:
    with pytest.raises(GraphError, match="cannot name an operator"):
        write_back.shim_text([name])


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_a_library_has_each_operator_once(names: list[str]) -> None:
    with pytest.raises(GraphError, match="each once"):
        write_back.shim_text(names)


def test_the_shim_compiles_without_a_warning() -> None:
    options = c_compiler.CompilerOptions(extra=("-Wall", "-Wextra", "-Werror", "-Wno-cast-function-type"))
    assert c_compiler.compile_object(write_back.shim_text(["one_1a", "two_2b"]), options).is_file()
    assert c_compiler.compile_object(
        "#define NOYAU_SIMULATED_LEVEL 2\n" + write_back.shim_text(["one_1a"]), options
    ).is_file()
    assert c_compiler.compile_object(package_text("hosts/onnxruntime/cpu_needs.c"), options).is_file()


@pytest.mark.parametrize("spoil", [lambda path: None, lambda path: path.write_bytes(b"not a library")])
def test_a_library_that_cannot_be_loaded_is_named(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    spoil(tmp_path / "gone.so")
    with pytest.raises(BuildError, match=r"onnxruntime does not load .*gone\.so"):
        sessions.open_session(STAND_INS["take"].plain().SerializeToString(), tmp_path / "gone.so")


def test_what_is_not_a_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"\x00not a model")
    with pytest.raises(ModelError, match=r"does not open .*bad\.onnx"):
        sessions.open_session(tmp_path / "bad.onnx")
    with pytest.raises(ModelError, match="does not open the model"):
        sessions.open_session(b"not a model")


def test_without_onnxruntime_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'noyau-kernels\[onnx\]'"):
        sessions.load_onnxruntime()
