from __future__ import annotations

import ctypes
import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

import pytest

from noyau.errors import BuildError, OutputError
from noyau.toolchain import cache
from noyau.toolchain.c import compiler as c_compiler

pytestmark = pytest.mark.as_shipped

EXPORTED = "#include <stdint.h>\nNOYAU_EXPORT int32_t answer(void) { return 42; }\n"


@pytest.fixture
def no_zig(monkeypatch):
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Makes a compiler: a shell script that says its version, and then does what it is given."""

    def make(body: str, name: str = "cc") -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        path = folder / name
        path.write_text(f'#!/bin/sh\ncase "$*" in *--version*) echo "fake 1.0"; exit 0;; esac\n{body}\n')
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def private_tmp(tmp_path, monkeypatch):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(c_compiler.tempfile, "tempdir", str(folder))
    return folder


def test_a_library_is_built_and_runs(empty_cache):
    library = ctypes.CDLL(str(c_compiler.compile_library([EXPORTED])))
    assert library.answer() == 42


def test_what_was_built_is_not_built_again(empty_cache, monkeypatch):
    first = c_compiler.compile_library([EXPORTED]), c_compiler.compile_object("int x;")
    monkeypatch.setattr(c_compiler, "_execute", lambda *_: pytest.fail("the compiler ran"))
    assert (c_compiler.compile_library([EXPORTED]), c_compiler.compile_object("int x;")) == first


def test_a_damaged_library_is_built_again(empty_cache):
    path = c_compiler.compile_library([EXPORTED])
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    assert c_compiler.compile_library([EXPORTED]).read_bytes() == whole


def test_equal_texts_make_equal_bytes(empty_cache):
    first = c_compiler.compile_library([EXPORTED]).read_bytes()
    cache.clear()
    assert c_compiler.compile_library([EXPORTED]).read_bytes() == first


@pytest.mark.parametrize(
    "options",
    [
        c_compiler.CompilerOptions(target="x86-64"),
        c_compiler.CompilerOptions(export=True),
        c_compiler.CompilerOptions(extra=("-DX=1",)),
        c_compiler.CompilerOptions(compiler="gcc"),
    ],
)
def test_each_option_is_in_the_key(empty_cache, options):
    if options.target not in ("native", *c_compiler._TARGETS.get(c_compiler.platform.machine(), ())):
        pytest.skip("this machine has other targets")
    assert c_compiler.compile_object("int x;", options).name[:40] != c_compiler.compile_object("int x;").name[:40]


def test_the_compiler_and_the_abi_are_in_the_key(empty_cache, monkeypatch):
    compiler = c_compiler.Compiler(("/usr/bin/cc",), "cc 1.0")
    keys = {
        c_compiler._key("object", compiler, ["-O3"], ["text"]),
        c_compiler._key("library", compiler, ["-O3"], ["text"]),
    }
    keys.add(c_compiler._key("object", c_compiler.Compiler(("/usr/bin/cc",), "cc 1.1"), ["-O3"], ["text"]))
    keys.add(c_compiler._key("object", c_compiler.Compiler(("/opt/cc",), "cc 1.0"), ["-O3"], ["text"]))
    keys.add(c_compiler._key("object", compiler, [], ["-O3", "text"]))
    monkeypatch.setattr(c_compiler, "ABI", c_compiler.ABI + 1)
    keys.add(c_compiler._key("object", compiler, ["-O3"], ["text"]))
    assert len(keys) == 6


def test_the_abi_is_the_header_s():
    header = files("noyau").joinpath("codegen", "c", "noyau.h").read_text(encoding="ascii")
    assert re.search(r"#define NOYAU_ABI (\d+)", header)[1] == str(c_compiler.ABI)


def test_flags_keep_infinities_and_name_a_level():
    flags = c_compiler._compile_flags(c_compiler.DEFAULTS, c_compiler.find_compiler())
    forbidden = ("fast-math", "Ofast", "native", "finite", "unsafe", "associative", "reciprocal", "no-signed-zeros")
    assert not [flag for flag in flags if any(word in flag for word in forbidden)]
    assert {"-std=c11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"} <= set(flags)
    assert {"-fPIC", "-fvisibility=hidden"} <= set(flags)
    clang = c_compiler.Compiler(("clang",), "Debian clang version 14.0.6")
    own = c_compiler.Compiler(("gcc",), "gcc (Debian 12.2.0-14) 12.2.0")
    gcc, other = (c_compiler._compile_flags(c_compiler.DEFAULTS, each) for each in (own, clang))
    assert [flag for flag in gcc if flag not in other] == ["-fno-tree-pre"]
    assert c_compiler._compile_flags(c_compiler.CompilerOptions(authored=True), own) == other


def test_denormals_stay_on_in_the_process(empty_cache):
    ctypes.CDLL(str(c_compiler.compile_library(["NOYAU_EXPORT float tiny(float x) { return x / 2; }"])))
    assert float.fromhex("0x1p-1022") / 4 > 0


@pytest.mark.parametrize(
    ("machine", "flags", "level"),
    [
        ("x86_64", "", "x86-64"),
        ("x86_64", "v2", "x86-64-v2"),
        ("x86_64", "v2 v3", "x86-64-v3"),
        ("AMD64", "v2 v3 v4", "x86-64-v4"),
        ("x86_64", "v2 v4", "x86-64-v2"),  # a level needs all those below it
        ("x86_64", "v3 v4", "x86-64"),
        ("aarch64", "v2 v3", "armv8-a"),
        ("arm64", "", "armv8-a"),
        ("riscv64", "v2", "generic"),
    ],
)
def test_levels(machine, flags, level):
    names = " ".join(c_compiler._X86_LEVELS[f"x86-64-{each}"] for each in flags.split())
    assert c_compiler.level_of(machine, frozenset(names.split())) == level
    for missing in names.split():
        assert c_compiler.level_of(machine, frozenset(names.split()) - {missing}) <= level


def test_native_is_a_level_that_this_machine_runs(empty_cache):
    assert c_compiler.resolve_target("native") == c_compiler.level()
    assert c_compiler.level() in c_compiler._TARGETS.get(c_compiler.platform.machine().lower(), ("generic",))


@pytest.mark.parametrize("target", ["x86-64-v9", "", "native -fplugin=evil.so", "-O0", "x86-64\nv3"])
def test_an_unknown_target_is_refused(target):
    with pytest.raises(BuildError, match=rf"unknown target {re.escape(repr(target))}: native, .* of this machine"):
        c_compiler.compile_object("int x;", c_compiler.CompilerOptions(target=target))


def test_a_refused_text_is_told_and_kept(empty_cache):
    with pytest.raises(BuildError) as caught:
        c_compiler.compile_object("int f(void) {\n  return missing_name;\n}\n")
    message = str(caught.value)
    assert re.search(r"does not compile it \(status 1\): kernel\.c:2:10: error: .*missing_name", message)
    assert "\n" not in message
    kept = Path(message.rpartition("the text is in ")[2])
    assert kept.read_text() == "int f(void) {\n  return missing_name;\n}\n"
    assert kept.parent == empty_cache


def test_a_text_with_control_characters_is_told_on_one_clean_line(empty_cache):
    with pytest.raises(BuildError) as caught:
        c_compiler.compile_object("#error \x1b[31m\x07 red \u202e\n")
    assert str(caught.value).isprintable()


def test_text_that_is_no_unicode_is_refused(empty_cache):
    with pytest.raises(BuildError, match="not Unicode at character 4; nothing was compiled"):
        c_compiler.compile_object("int \ud800;")


@pytest.mark.parametrize(
    "name",
    [
        '"; touch owned; "',
        "$(touch owned)",
        "`touch owned`",
        "../../owned",
        "-o owned",
        "@owned",
        "a\nb",
        "*/ int y; /*",
    ],
)
def test_hostile_texts_touch_nothing(empty_cache, private_tmp, tmp_path, monkeypatch, name):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    c_compiler.compile_object(f"/* {name} */ int x;\n")
    with pytest.raises(BuildError):
        c_compiler.compile_object(f'#include "{name}"\n')
    assert list((tmp_path / "here").iterdir()) == list(private_tmp.iterdir()) == []
    assert not list(tmp_path.rglob("*owned*"))


def test_standard_input_is_not_read(empty_cache):
    program = """from noyau.toolchain.c import compiler as cc; cc.compile_object('#include "/dev/stdin"\\n')"""
    subprocess.run([sys.executable, "-c", program], input=b"#error it was read\n", check=True, timeout=60)


def test_include_paths_of_the_environment_do_not_count(empty_cache, tmp_path, monkeypatch):
    (tmp_path / "secret.h").write_text("int x;")
    for name in ("CPATH", "C_INCLUDE_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises(BuildError, match=r"secret\.h"):
        c_compiler.compile_object("#include <secret.h>\n")


def test_no_compiler_is_one_error_with_both_remedies(empty_cache, no_zig, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    message = (
        "no C compiler: neither cc, gcc, clang on PATH nor ziglang is there; "
        "install gcc or clang, or run: pip install 'noyau-kernels[cc]'"
    )
    with pytest.raises(BuildError, match=re.escape(message)):
        c_compiler.compile_library([EXPORTED])


@pytest.mark.parametrize("name", ["no-such-cc", "/no/such/cc", "-rf", "zig"])
def test_a_named_compiler_that_is_missing(no_zig, monkeypatch, tmp_path, name):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=f"the compiler '{name}' is not on PATH or does not run; name another"):
        c_compiler.find_compiler(name)


def test_a_compiler_that_does_not_run_is_passed_over(no_zig, script, monkeypatch):
    script("", "gcc")
    broken = script("", "cc")
    broken.write_text("#!/bin/sh\nexit 1\n")
    (broken.parent / "clang").write_text("not executable")
    monkeypatch.setenv("PATH", f"{broken.parent}")
    assert c_compiler.find_compiler() == c_compiler.Compiler((str(broken.parent / "gcc"),), "fake 1.0")
    broken.write_bytes(b"\x7fELF not a program")
    monkeypatch.setenv("PATH", f"{broken.parent}{os.pathsep}")
    assert c_compiler.find_compiler().version == "fake 1.0"


def test_ziglang_is_the_last_resort(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"ziglang": "0.99"}[name])
    monkeypatch.setattr(c_compiler, "_execute", lambda command, *_: (0, f"clang of {' '.join(command[1:])}\n"))
    found = c_compiler.find_compiler()
    assert found.command == (sys.executable, "-m", "ziglang", "cc")
    assert found.version == "clang of -m ziglang cc --version (ziglang 0.99)"
    assert found.is_zig
    c_compiler._find.cache_clear()


def test_zig_names_processors_where_others_name_levels(monkeypatch):
    zig, gcc = (
        c_compiler.Compiler((sys.executable, "-m", "ziglang", "cc"), ""),
        c_compiler.Compiler(("/usr/bin/gcc",), ""),
    )
    for machine, target, spelt in (
        ("x86_64", "x86-64-v3", "x86_64_v3"),
        ("x86_64", "x86-64", "x86_64"),
        ("aarch64", "armv8-a", "generic"),
    ):
        monkeypatch.setattr(c_compiler.platform, "machine", lambda machine=machine: machine)
        assert f"-march={spelt}" in c_compiler._compile_flags(c_compiler.CompilerOptions(target=target), zig)
        assert f"-march={target}" in c_compiler._compile_flags(c_compiler.CompilerOptions(target=target), gcc)
    monkeypatch.setattr(c_compiler.platform, "machine", lambda: "riscv64")
    assert not [flag for flag in c_compiler._compile_flags(c_compiler.DEFAULTS, gcc) if flag.startswith("-march")]


@pytest.mark.slow
def test_ziglang_builds_where_it_is_installed(empty_cache):
    pytest.importorskip("ziglang", reason="ziglang is of the extra cc")
    assert (
        ctypes.CDLL(str(c_compiler.compile_library([EXPORTED], c_compiler.CompilerOptions(compiler="zig")))).answer()
        == 42
    )


def _is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _await(path: Path) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if path.exists() and path.read_text().strip():
            return int(path.read_text())
        time.sleep(0.01)
    raise AssertionError(f"{path} was not written")


def _ended(process: int) -> bool:
    deadline = time.monotonic() + 20
    while _is_alive(process) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not _is_alive(process)


def test_a_slow_compiler_ends_with_its_children(empty_cache, script, private_tmp, tmp_path):
    compiler = script(f"sleep 300 & echo $! > {tmp_path}/child; touch half; wait")
    with pytest.raises(BuildError, match=r"cc did not compile within 0\.5 s and was ended; the text is in .*\.c"):
        c_compiler.compile_object("int x;", c_compiler.CompilerOptions(compiler=str(compiler), timeout_s=0.5))
    assert _ended(_await(tmp_path / "child"))
    assert list(private_tmp.iterdir()) == []
    assert [path.suffix for path in empty_cache.iterdir()] == [".c"]


def test_ctrl_c_leaves_nothing(script, tmp_path):
    compiler = script(f"sleep 300 & echo $! > {tmp_path}/child; touch half $TMPDIR/more; wait")
    program = (
        "from noyau.toolchain.c import compiler as cc; "
        f"cc.compile_object('int x;', cc.CompilerOptions(compiler={str(compiler)!r}))"
    )
    (tmp_path / "tmp").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=subprocess.DEVNULL) as process:
        child = _await(tmp_path / "child")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) != 0
    assert _ended(child)
    assert list((tmp_path / "tmp").iterdir()) == list((tmp_path / "cache/noyau").iterdir()) == []


def test_ctrl_c_ends_the_compilers_of_other_threads(empty_cache, script, private_tmp, tmp_path):
    compiler = script(f"sleep 300 & echo $! > {tmp_path}/child; wait")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(c_compiler.compile_object, "int x;", c_compiler.CompilerOptions(compiler=str(compiler)))
        child = _await(tmp_path / "child")
        c_compiler.end_all()
        with pytest.raises(BuildError, match="does not compile it"):
            waiting.result(20)
    assert _ended(child)
    assert list(private_tmp.iterdir()) == []


def test_ctrl_c_ends_a_compiler_that_just_starts(empty_cache, script, private_tmp, tmp_path, monkeypatch):
    begin = subprocess.Popen

    def interrupt(*arguments, **options):
        process = begin(*arguments, **options)
        c_compiler.end_all()
        return process

    compiler = script("sleep 300")
    assert c_compiler.find_compiler(str(compiler))
    monkeypatch.setattr(c_compiler.subprocess, "Popen", interrupt)
    with pytest.raises(BuildError, match="does not compile it"):
        c_compiler.compile_object("int x;", c_compiler.CompilerOptions(compiler=str(compiler), timeout_s=20))
    assert list(private_tmp.iterdir()) == []


def test_a_compiler_that_writes_nothing_is_told(empty_cache, script, tmp_path):
    options, built = c_compiler.CompilerOptions(compiler=str(script("exit 0"))), c_compiler.compile_object("int x;")
    with pytest.raises(BuildError, match="cc says that all is well, and wrote nothing; install gcc or clang"):
        c_compiler.compile_object("int x;", options)
    with pytest.raises(BuildError, match="cc says that all is well, and wrote nothing; install gcc or clang"):
        c_compiler.link([built], tmp_path / "x.so", options)
    assert not (tmp_path / "x.so").exists()


def test_a_compiler_that_fails_without_a_word(empty_cache, script):
    with pytest.raises(BuildError, match=r"cc does not compile it \(status 3\): it says nothing"):
        c_compiler.compile_object("int x;", c_compiler.CompilerOptions(compiler=str(script("exit 3"))))


def test_a_full_disk_is_no_fault_of_the_text(empty_cache, script):
    says = script("echo 'kernel.c:1:1: fatal error: error writing to x.s: No space left on device'; exit 1")
    told = r"cc has no room to compile in .*: No space left on device; make room there"
    with pytest.raises(OutputError, match=told) as caught:
        c_compiler.compile_object("int x;", c_compiler.CompilerOptions(compiler=str(says)))
    assert caught.value.lacks_room
    assert list(empty_cache.glob("*.c")) == []


def test_what_a_compiler_says_twice_is_told_once():
    assert c_compiler.summary("a.c: error: no\n  a.c: error: no\n") == "a.c: error: no"
    twice = "b.o: multiple definition of `x'; a.o: first defined here"
    assert c_compiler.summary(f"{twice}\ncollect2: error: ld returned 1 exit status").startswith(f"{twice} | collect2")


def test_a_compiler_that_vanishes(empty_cache, script):
    compiler = script("")
    options = c_compiler.CompilerOptions(compiler=str(compiler))
    assert c_compiler.find_compiler(options.compiler)
    compiler.unlink()
    with pytest.raises(BuildError, match="cc does not run: No such file or directory; install gcc"):
        c_compiler.compile_object("int x;", options)


def test_two_processes_build_the_same_text(tmp_path):
    program = f"""
import ctypes
from noyau.toolchain.c import compiler as cc
print(ctypes.CDLL(str(cc.compile_library([{EXPORTED!r}]))).answer())
"""
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    workers = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [worker.communicate(timeout=60)[0] for worker in workers] == ["42\n", "42\n"]
    assert len(list((tmp_path / "noyau").glob("*.so"))) == 1
