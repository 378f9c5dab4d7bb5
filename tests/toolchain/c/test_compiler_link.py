from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from noyau.errors import BuildError, OutputError
from noyau.toolchain.c import compiler as c_compiler

EXPORTED = "#include <stdint.h>\nNOYAU_EXPORT int32_t answer(void) { return 42; }\n"


def test_objects_are_linked_to_a_file(tmp_path):
    objects = [
        c_compiler.compile_object(text, c_compiler.CompilerOptions(export=True)) for text in (EXPORTED, "int x;")
    ]
    c_compiler.link(objects, tmp_path / "out put;$(touch x).so")
    assert ctypes.CDLL(str(tmp_path / "out put;$(touch x).so")).answer() == 42
    assert [path.name for path in tmp_path.iterdir()] == ["out put;$(touch x).so"]


def test_an_undefined_name_is_told(empty_cache):
    with pytest.raises(BuildError, match=r"does not link it \(status 1\): .*missing_function"):
        c_compiler.compile_library(
            ["int missing_function(void); NOYAU_EXPORT int f(void) { return missing_function(); }"]
        )


def test_a_missing_output_folder(tmp_path):
    made = c_compiler.compile_object("int x;")
    with pytest.raises(
        OutputError, match=r"nowhere/out\.so cannot be written: No such file or directory; give a folder"
    ):
        c_compiler.link([made], tmp_path / "nowhere" / "out.so")


def test_an_output_that_is_a_folder(tmp_path):
    (tmp_path / "out.so").mkdir()
    with pytest.raises(OutputError, match=r"out\.so cannot be written: Is a directory"):
        c_compiler.link([c_compiler.compile_object("int x;")], tmp_path / "out.so")
    assert [path.name for path in tmp_path.iterdir()] == ["out.so"]


def test_a_full_disk_leaves_the_old_library(tmp_path, monkeypatch):
    made = c_compiler.compile_object("int x;")
    (tmp_path / "out.so").write_bytes(b"old")
    copy = c_compiler.shutil.copyfile

    def full(source: Path, target: Path) -> None:
        if Path(target).parent == tmp_path:
            Path(target).write_bytes(b"half")
            raise OSError(28, "No space left on device")
        copy(source, target)

    monkeypatch.setattr(c_compiler.shutil, "copyfile", full)
    with pytest.raises(OutputError, match="No space left on device; give a folder that has room"):
        c_compiler.link([made], tmp_path / "out.so")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("out.so", b"old")]


def test_an_object_that_is_gone(tmp_path):
    with pytest.raises(BuildError, match=r"the object .*gone\.o is gone \(No such file or directory\); build it again"):
        c_compiler.link([tmp_path / "gone.o"], tmp_path / "out.so")


def test_several_texts_make_one_library(empty_cache):
    texts = [EXPORTED, EXPORTED.replace("answer", "other").replace("42", "7")]
    library = ctypes.CDLL(str(c_compiler.compile_library(texts)))
    assert (library.answer(), library.other()) == (42, 7)


def test_only_what_is_exported_is_visible(empty_cache):
    hidden = "int hidden(void) { return 1; }\n" + EXPORTED
    library = ctypes.CDLL(str(c_compiler.compile_library([hidden])))
    assert not hasattr(library, "hidden")
    assert hasattr(library, "answer")
