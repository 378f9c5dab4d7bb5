from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from noyau.errors import BuildError, OutputError
from noyau.toolchain import cache

KEY = cache.digest("a key")


def writer(data: bytes):
    return lambda path: path.write_bytes(data)


def refuse(path: Path) -> None:
    raise AssertionError("built again")


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds, time.time() - seconds))


def test_what_is_stored_is_found(empty_cache):
    assert cache.lookup(KEY, ".so") is None
    path = cache.store(KEY, ".so", writer(b"machine code"))
    assert path.read_bytes() == b"machine code"
    assert cache.lookup(KEY, ".so") == path
    assert path.parent == cache.folder() == empty_cache


def test_suffixes_and_keys_are_apart(empty_cache):
    cache.store(KEY, ".o", writer(b"object"))
    assert cache.lookup(KEY, ".so") is None
    assert cache.lookup(cache.digest("another"), ".o") is None


def test_the_folder_and_its_files_are_private(empty_cache):
    path = cache.store(KEY, ".so", writer(b"x"))
    assert empty_cache.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_key_tells_how_its_parts_are_divided():
    parts = (("ab", "c"), ("a", "bc"), ("abc",), ("ab", "c", ""), (b"ab\0", "c"), ("\ud800",))
    keys = [cache.digest(*each) for each in parts]
    assert len(set(keys)) == len(parts)
    assert all(len(key) == 40 and int(key, 16) >= 0 for key in keys)
    assert cache.digest("ab", b"c") == cache.digest(b"ab", "c")


@pytest.mark.skipif(sys.platform != "linux", reason="the variable is Linux's")
@pytest.mark.parametrize(("variable", "folder"), [("", ".cache"), ("not/absolute", ".cache"), ("{}/own", "own")])
def test_the_folder_is_the_platform_s(monkeypatch, tmp_path, variable, folder):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", variable.format(tmp_path))
    assert cache._home() == tmp_path / folder / "noyau"


def test_a_damaged_entry_is_removed_and_made_again(empty_cache):
    path = cache.store(KEY, ".so", writer(b"right"))
    for damage in (b"wrong", b"", b"righ"):
        path.write_bytes(damage)
        assert cache.lookup(KEY, ".so") is None
        assert not path.exists()
        assert cache.store(KEY, ".so", writer(b"right")) == path
        assert cache.lookup(KEY, ".so") == path


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_not_used(empty_cache, mode):
    path = cache.store(KEY, ".so", writer(b"x"))
    path.chmod(mode)
    assert cache.lookup(KEY, ".so") is None
    assert not path.exists()


def test_a_link_is_not_followed(empty_cache, tmp_path):
    path = cache.store(KEY, ".so", writer(b"x"))
    (tmp_path / "elsewhere").write_bytes(b"x")
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.lookup(KEY, ".so") is None
    assert (tmp_path / "elsewhere").read_bytes() == b"x"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_not_read(empty_cache, make):
    path = cache.store(KEY, ".so", writer(b"x"))
    path.unlink()
    make(path, 0o600)
    assert cache.lookup(KEY, ".so") is None


def test_a_file_of_another_user_is_not_used(empty_cache, monkeypatch):
    path = cache.store(KEY, ".so", writer(b"x"))
    assert cache._is_sound(path)
    monkeypatch.setattr(cache.os, "geteuid", lambda: path.stat().st_uid + 1)
    assert not cache._is_sound(path)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722])
def test_a_folder_that_others_may_write_is_refused(empty_cache, mode):
    planted = cache.store(KEY, ".so", writer(b"planted"))
    empty_cache.chmod(mode)
    with pytest.warns(RuntimeWarning, match=rf"{empty_cache} is not used: others may write to it \(mode {mode:04o}"):
        assert cache.folder() != empty_cache
    with warnings.catch_warnings(action="ignore"):
        assert cache.lookup(KEY, ".so") is None
        fresh = cache.store(KEY, ".so", writer(b"ours"))
        assert cache.lookup(KEY, ".so") == fresh
        cache.clear()
    assert fresh.parent.stat().st_mode & 0o777 == 0o700
    assert planted.read_bytes() == b"planted"


def test_a_folder_of_another_user_is_refused(empty_cache, monkeypatch):
    cache.store(KEY, ".so", writer(b"theirs"))
    owner = empty_cache.stat().st_uid
    monkeypatch.setattr(cache.os, "geteuid", lambda: owner + 1)
    with pytest.warns(RuntimeWarning, match=f"it belongs to user {owner}, not to user {owner + 1}"):
        assert cache.folder() != empty_cache


def test_a_folder_that_cannot_be_made_is_replaced(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="the cache folder .*/file/noyau is not used: Not a directory; kernels"):
        path = cache.store(KEY, ".so", writer(b"x"))
    assert path.read_bytes() == b"x"
    assert (tmp_path / "file").read_text() == "in the way"


def test_that_the_folder_is_replaced_is_told_once(tmp_path):
    program = "from noyau.toolchain import cache\ncache.size_bytes()\ncache.lookup('0' * 40, '.so')\ncache.folder()"
    environment = {**os.environ, "XDG_CACHE_HOME": os.devnull, "PYTHONWARNINGS": "default"}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert told.stderr.count("is not used: Not a directory") == 1


def test_a_read_only_folder_is_replaced(empty_cache, monkeypatch):
    kept = cache.store(KEY, ".so", writer(b"x"))
    monkeypatch.setattr(cache.os, "access", lambda path, mode: False)  # as on a read-only disk, also for root
    with pytest.warns(RuntimeWarning, match="not used: it is read-only"):
        path = cache.store(KEY, ".so", writer(b"x"))
    assert path.parent != kept.parent


def test_no_home_is_no_error(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "nowhere")
    monkeypatch.setattr("pwd.getpwuid", lambda number: (_ for _ in ()).throw(KeyError(number)))
    with pytest.warns(RuntimeWarning, match="home directory"):
        assert cache.folder().is_dir()


def test_the_temporary_folder_ends_with_its_process_not_with_its_children(tmp_path):
    program = """
import os, sys, warnings
from noyau.toolchain import cache
warnings.simplefilter("ignore")
first = cache.folder()
child = os.fork()
if not child:
    sys.exit(0 if cache.folder() != first else 3)
assert os.waitpid(child, 0)[1] == 0
assert first.is_dir()
"""
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path / "tmp")}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_an_interrupted_build_leaves_nothing(empty_cache):
    for failure in (KeyboardInterrupt(), BuildError("refused"), OutputError("no room")):

        def produce(path: Path, failure: BaseException = failure) -> None:
            path.write_bytes(b"half")
            raise failure

        with pytest.raises(type(failure)) as caught:
            cache.store(KEY, ".so", produce)
        assert caught.value is failure
    assert list(empty_cache.iterdir()) == []


@pytest.mark.parametrize("places", [(), ("/tmp/x.o", None, "{}/x.o")])
def test_a_full_disk_is_one_clear_error(places, empty_cache):
    def produce(path: Path) -> None:
        raise OSError(28, "No space left on device", *(each and each.format(empty_cache) for each in places))

    told = f"{empty_cache}(/x.o)? cannot be written: No space left on device; make room"
    with pytest.raises(OutputError, match=told) as caught:
        cache.store(KEY, ".so", produce)
    assert caught.value.lacks_room
    assert list(empty_cache.iterdir()) == []


def test_the_least_recently_used_entries_make_room(empty_cache):
    keys = [cache.digest(str(number)) for number in range(4)]
    paths = [cache.store(key, ".so", writer(bytes([number]) * 1000)) for number, key in enumerate(keys)]
    for path, seconds in zip(paths, (400, 300, 200, 100), strict=True):
        age(path, seconds)
    assert cache.lookup(keys[0], ".so")  # used again: no longer the oldest
    newest = cache.store(KEY, ".so", writer(b"n" * 1000), limit_bytes=3000)
    assert sorted(empty_cache.iterdir()) == sorted([paths[0], paths[3], newest])
    assert cache.size_bytes() == 3000


def test_an_entry_beyond_the_limit_is_still_given(empty_cache):
    path = cache.store(KEY, ".so", writer(b"n" * 1000), limit_bytes=10)
    assert path.stat().st_size == 1000


def test_clear_counts_and_leaves_what_is_not_an_entry(empty_cache):
    for number in range(3):
        cache.store(cache.digest(str(number)), ".o", writer(bytes(10)))
    (empty_cache / "notes.txt").write_text("the user's")
    assert cache.size_bytes() == 30
    assert cache.clear() == 3
    assert cache.clear() == cache.size_bytes() == 0
    assert [path.name for path in empty_cache.iterdir()] == ["notes.txt"]


def test_room_is_made_at_every_64th_entry(empty_cache, monkeypatch):
    monkeypatch.setattr(cache, "_stored", itertools.count(1))
    monkeypatch.setattr(cache, "LIMIT_BYTES", 200)
    for number in range(64):
        assert len(list(empty_cache.glob("*"))) == number
        cache.store(cache.digest(str(number)), ".o", writer(bytes(10)), limit_bytes=200)
    assert cache.size_bytes() == 200


def test_workspaces_of_killed_processes_go(empty_cache):
    cache.folder()
    for name, seconds in (("new-old", 7200), ("new-busy", 60)):
        (empty_cache / name).mkdir()
        (empty_cache / name / "half.so").touch()
        age(empty_cache / name, seconds)
    cache.store(KEY, ".so", writer(b"x"), limit_bytes=1000)
    assert {path.name for path in empty_cache.glob("new-*")} == {"new-busy"}


def test_two_processes_store_the_same_key(empty_cache):
    program = f"""
import time
from noyau.toolchain import cache
def produce(path):
    with path.open("wb") as file:
        for _ in range(200):
            file.write(b"0123456789" * 100); file.flush()
for round in range(20):
    assert cache.store({KEY!r}, ".so", produce).stat().st_size == 200_000
    found = cache.lookup({KEY!r}, ".so")
    assert found and found.read_bytes() == b"0123456789" * 20_000
"""
    workers = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert len(list(empty_cache.iterdir())) == 1


def test_an_entry_that_vanishes_meanwhile_is_no_error(empty_cache, monkeypatch):
    paths = [cache.store(cache.digest(str(number)), ".o", writer(bytes(10))) for number in range(2)]
    found = cache._entries(empty_cache)
    paths[0].unlink()
    monkeypatch.setattr(cache, "_entries", lambda home: list(itertools.chain(found)))
    assert cache.clear() == 1


def test_what_is_there_is_not_built_again(empty_cache):
    path = cache.store(KEY, ".so", writer(b"x"))
    assert cache.lookup(KEY, ".so") or cache.store(KEY, ".so", refuse) == path
