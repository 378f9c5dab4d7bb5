"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import filecmp
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.testing import assert_array_equal
from onnx import numpy_helper
from onnx.external_data_helper import set_external_data

from noyau.errors import ModelError, OutputError
from noyau.hosts.onnxruntime import model_files, runs, sessions
from noyau.hosts.onnxruntime.model_files import library_path, save
from tests.hosts.kernels import STAND_INS, build_library, kernel_text, model_of
from tests.large_model import write_large_model

HOSTILE = [
    "a b.onnx",
    'q"uote.onnx',
    "new\nline.onnx",
    "$(touch x).onnx",
    "; rm -rf x.onnx",
    "\u00e9.onnx",
    "*.onnx",
    "-o.onnx",
]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "built.so"
    path.write_bytes(b"a library")
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def model() -> onnx.ModelProto:
    return STAND_INS["scale_add"].fused("scale_add_1f")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_two_files_have_one_stem_and_nothing_else_is_left(out: Path, library: Path) -> None:
    save(model(), library, out / "m.fused.onnx")
    assert contents(out) == {"m.fused.onnx": model().SerializeToString(), "m.fused.so": b"a library"}
    assert (out / "m.fused.onnx").stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_without_a_library_there_is_one_file(out: Path) -> None:
    save(model(), None, out / "m.onnx")
    assert list(contents(out)) == ["m.onnx"]


def test_files_that_were_there_are_replaced(out: Path, library: Path) -> None:
    (out / "m.onnx").write_bytes(b"old")
    (out / "m.so").write_bytes(b"old")
    save(model(), library, out / "m.onnx")
    assert contents(out) == {"m.onnx": model().SerializeToString(), "m.so": b"a library"}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_strange_name_is_only_a_name(name: str, out: Path, tmp_path: Path) -> None:
    build_library({"scale_add_1f": kernel_text(STAND_INS["scale_add"].text, "scale_add_1f")}, tmp_path / "b.so")
    save(model(), tmp_path / "b.so", out / name)
    assert sorted(contents(out)) == sorted([name, name.removesuffix(".onnx") + ".so"])
    session = sessions.open_session(out / name, library_path(out / name))
    feeds = STAND_INS["scale_add"].feeds(np.random.default_rng(0), 2)
    assert runs.run(session, feeds)["out"].shape == (2, 40)


@pytest.mark.parametrize(
    "name", ["m.so", "no/folder/m.onnx", "x" * 300 + ".onnx", "nul\0.onnx", "folder.onnx", "file/m.onnx"]
)
def test_a_place_that_cannot_be_written_is_named(name: str, out: Path, library: Path) -> None:
    (out / "folder.onnx").mkdir()
    (out / "file").write_bytes(b"")
    before = contents(out)
    with pytest.raises(OutputError, match="cannot be written"):
        save(model(), library, out / name)
    assert contents(out) == before


def test_what_is_no_file_does_not_give_way_to_one(out: Path, library: Path) -> None:
    """Renamed over /dev/null, a model would break the system of a user who may do that."""
    for name in ("m.onnx", "m.so"):
        os.mkfifo(out / name)
        with pytest.raises(OutputError, match="cannot be written: it is no plain file"):
            save(model(), library, out / "m.onnx")
        assert os.listdir(out) == [name]
        assert (out / name).is_fifo()
        (out / name).unlink()


def test_a_folder_alone_is_no_name() -> None:
    with pytest.raises(OutputError, match="not the name of a file"):
        save(model(), None, Path("/"))


@pytest.fixture
def closed_folder() -> Iterator[Path]:
    """A folder that this process may not write, also where it is root's: it is somebody else for the while."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield folder
    if root:
        os.seteuid(0)
    shutil.rmtree(folder)


def test_a_read_only_folder_is_named(closed_folder: Path) -> None:
    with pytest.raises(OutputError, match=r"m\.onnx cannot be written: Permission denied"):
        save(model(), None, closed_folder / "m.onnx")
    assert not contents(closed_folder)


def fails_at(number: int, error: BaseException, real: Callable[..., object]) -> Callable[..., object]:
    """A function that does its work except the number-th time."""
    calls = iter(range(10**9))

    def call(*arguments: object, **more: object) -> object:
        if next(calls) == number:
            raise error
        return real(*arguments, **more)

    return call


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("call", ["write", "fsync", "open", "link"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_anywhere_leaves_what_was_there(
    error: BaseException, call: str, number: int, there: bool, out: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if there:
        (out / "m.onnx").write_bytes(b"old model")
        (out / "m.so").write_bytes(b"old library")
    before = contents(out)
    monkeypatch.setattr(model_files.os, call, fails_at(number, error, getattr(os, call)))
    try:
        save(model(), library, out / "m.onnx")
    except (OutputError, KeyboardInterrupt):
        assert contents(out) == before
    else:  # this call does not happen so often, or is one of those that may fail
        assert sorted(contents(out)) == ["m.onnx", "m.so"]
        assert contents(out)["m.so"] == b"a library"


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_a_failing_rename_takes_the_other_back(
    error: BaseException, number: int, there: bool, out: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if there:
        (out / "m.onnx").write_bytes(b"old model")
        (out / "m.so").write_bytes(b"old library")
    before = contents(out)
    real = fails_at(number, error, Path.replace)
    monkeypatch.setattr(Path, "replace", lambda self, target: real(self, target))
    with pytest.raises((OutputError, KeyboardInterrupt)):
        save(model(), library, out / "m.onnx")
    assert contents(out) == before


def test_a_full_disk_is_named(out: Path) -> None:
    """The real thing: a process that may write no file of more than 64 KiB."""
    text = """
import resource, sys
from pathlib import Path
from noyau.errors import OutputError
from noyau.hosts.onnxruntime.model_files import save
class Model:
    graph = type("Graph", (), {"node": (), "initializer": (), "sparse_initializer": ()})
    functions = ()
    def SerializeToString(self):
        return bytes(1 << 20)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    save(Model(), None, Path(sys.argv[1]))
except OutputError as error:
    print(error)
"""
    told = subprocess.run(
        [sys.executable, "-c", text, out / "m.onnx"], capture_output=True, text=True, check=True
    ).stdout
    assert "m.onnx cannot be written: File too large" in told
    assert not contents(out)


def test_a_model_too_large_for_a_file_is_named(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = model()

    class Large:
        graph, functions = large.graph, large.functions

        def SerializeToString(self) -> bytes:
            raise ValueError("exceeds 2GiB")

    with pytest.raises(ModelError, match="more than 2 GB"):
        save(Large(), None, out / "m.onnx")


def with_data(folder: Path, location: str = "m.data") -> onnx.ModelProto:
    """A model in a folder, whose weight lies in a file beside it."""
    inputs, outputs = STAND_INS["scale_add"].types()
    weight = numpy_helper.from_array(np.arange(40, dtype=np.float32), "w")
    found = model_of(STAND_INS["scale_add"].nodes, [inputs[0], inputs[2]], outputs, [weight])
    folder.joinpath(location).parent.mkdir(parents=True, exist_ok=True)
    folder.joinpath(location).write_bytes(weight.raw_data)
    set_external_data(found.graph.initializer[0], location, 0, 160)
    found.graph.initializer[0].ClearField("raw_data")
    (folder / "m.onnx").write_bytes(found.SerializeToString())
    return found


def result(path: Path) -> np.ndarray:
    feeds = {"x": np.ones((2, 40), np.float32), "s": np.array(0, np.float32)}
    return runs.run(sessions.open_session(path), feeds)["out"]


def test_external_data_stays_where_it_is_in_the_same_folder(tmp_path: Path) -> None:
    found = with_data(tmp_path)
    before = (tmp_path / "m.data").stat()
    save(found, None, tmp_path / "fused.onnx", tmp_path)
    assert (tmp_path / "m.data").stat() == before
    assert sorted(contents(tmp_path)) == ["fused.onnx", "m.data", "m.onnx"]
    assert_array_equal(result(tmp_path / "fused.onnx")[0], np.arange(40))


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("location", ["m.data", "deep/er/m.data"])
def test_external_data_comes_along_to_another_folder(
    location: str, ranges: bool, tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = with_data(tmp_path / "in", location)
    if not ranges:
        call = fails_at(0, OSError(errno.EXDEV, "another device"), os.copy_file_range)
        monkeypatch.setattr(model_files.os, "copy_file_range", call)
    save(found, None, out / "m.onnx", tmp_path / "in")
    assert sorted(contents(out)) == sorted(["m.onnx", location])
    for folder in (out, tmp_path / "in"):  # onnx refuses data that has a second link
        assert (folder / location).stat().st_nlink == 1
        onnx.checker.check_model(folder / "m.onnx")
    assert_array_equal(result(out / "m.onnx")[0], np.arange(40))
    save(found, None, out / "m.onnx", tmp_path / "in")  # and again


def test_other_data_under_the_same_name_is_not_overwritten(tmp_path: Path, out: Path) -> None:
    found = with_data(tmp_path / "in")
    (out / "m.data").write_bytes(b"of another model")
    with pytest.raises(OutputError, match=r"m\.data is there already and is not this model's data"):
        save(found, None, out / "m.onnx", tmp_path / "in")
    assert contents(out) == {"m.data": b"of another model"}


def test_copied_data_goes_again_when_the_model_cannot_be_written(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = with_data(tmp_path / "in", "deep/m.data")
    monkeypatch.setattr(
        model_files.os, "fsync", fails_at(0, OSError(errno.ENOSPC, "No space left on device"), os.fsync)
    )
    with pytest.raises(OutputError, match="No space left"):
        save(found, None, out / "m.onnx", tmp_path / "in")
    assert not list(out.iterdir())
    assert (tmp_path / "in" / "deep" / "m.data").stat().st_size == 160


@pytest.mark.parametrize("location", ["../secret", "/etc/hostname", "a/../../secret", "", "link", "gone", "a\0b"])
def test_data_outside_the_models_folder_is_refused(location: str, tmp_path: Path, out: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(160))
    found = with_data(tmp_path / "in")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "secret")
    for entry in found.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    with pytest.raises(ModelError):
        save(found, None, out / "m.onnx", tmp_path / "in")
    found.graph.initializer[0].external_data.add(key="location", value="m.data")  # the last one counts
    save(found, None, out / "m.onnx", tmp_path / "in")
    assert sorted(contents(out)) == ["m.data", "m.onnx"]
    assert not (tmp_path / "out" / "link").exists()


def test_external_data_needs_its_folder(tmp_path: Path, out: Path) -> None:
    with pytest.raises(OutputError, match="which folder"):
        save(with_data(tmp_path / "in"), None, out / "m.onnx")


def test_large_data_is_copied_and_not_loaded(tmp_path: Path, out: Path) -> None:
    large = write_large_model(tmp_path, hidden=1024, intermediate=16384)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    save(onnx.load(large.path, load_external_data=False), None, out / "large.onnx", tmp_path)
    assert filecmp.cmp(out / large.data.name, large.data, shallow=False)
    assert large.total_bytes > 15 * 10**7
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 10**8
