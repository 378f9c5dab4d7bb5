"""A function in a restricted process: limited time and memory, files of its own folder, no network.

Linux provides resource limits, namespaces of users, processes and the network (unshare), and Landlock for files
(docs.kernel.org, userspace-api/landlock). Each is used if the system permits it; the Ending names the missing ones."""

import contextlib
import ctypes
import json
import os
import platform
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICK_S = 0.01
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/proc", "/sys/devices/system", "/etc/ld.so.cache", "/etc/passwd")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_NEW_USER, _NEW_PROCESSES, _NEW_NETWORK, _NEW_IPC = 0x10000000, 0x20000000, 0x40000000, 0x08000000
_NO_NEW_PRIVILEGES, _DIE_WITH_PARENT, _SUBREAPER = 38, 1, 36  # options of prctl
_RULESET, _RULE, _RESTRICT = 444, 445, 446  # system calls of Landlock, the same on every processor
_READ, _WRITE_FILE, _READ_FILE, _TRUNCATE = 0b1101, 1 << 1, 1 << 2, 1 << 14
_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # numbers of file rights by version of Landlock
_OF_A_FILE = 0b111 | _TRUNCATE | 1 << 15
WITHOUT_FILES, WITHOUT_NETWORK = "files beyond its folder", "the network"


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a process may use: seconds of processor and clock, bytes beyond its initial ones, and of a file."""

    cpu_s: float = 10.0
    clock_s: float = 60.0
    memory_bytes: int = 2 << 30
    file_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a confined process: its status, below 0 a signal; `is_late`: out of time; `open`: missing limits."""

    status: int
    is_late: bool
    open: tuple[str, ...]


def run_confined(function: Callable[[], None], folder: Path, readable: Sequence[str], limits: Limits) -> Ending:
    """Run a function in a copy of this process that can read files in `readable` and the system's libraries, write in
    `folder`, and is killed with all its descendants once it exceeds its limits. Its output goes into `folder /
    "printed"`. This process should have one thread."""
    here, there = os.pipe()
    supervisor = os.fork()
    if not supervisor:
        with contextlib.suppress(BaseException):
            os.close(here)
            _supervise(function, folder, readable, limits, there)
        os._exit(1)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        report = pipe.read()
    os.waitpid(supervisor, 0)
    status, is_late, is_open = json.loads(report or b"[1, false, []]")
    return Ending(status, is_late, tuple(is_open))


def die_with_parent() -> None:
    """Let the system kill this process when its parent ends, on Linux."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def _supervise(function: Callable[[], None], folder: Path, readable: Sequence[str], limits: Limits, pipe: int) -> None:
    """The process between: it starts the confined one in namespaces of its own, waits, and kills leftovers."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.setsid()
    die_with_parent()
    libc.prctl(_SUBREAPER, 1)
    is_open = [] if _unshare(libc) else [WITHOUT_NETWORK]
    reader, writer = os.pipe()
    confined = os.fork()
    if not confined:
        try:
            os.close(reader)
            os.write(writer, b"1" if _confine(libc, folder, readable, limits, keep=writer) else b"0")
            os.close(writer)
            function()
        finally:
            os._exit(0)
    os.close(writer)
    status, is_late = _end_of(confined, limits)
    while _kill_children():
        time.sleep(_TICK_S)
    if os.read(reader, 1) != b"1":
        is_open.append(WITHOUT_FILES)
    os.write(pipe, json.dumps([status, is_late, is_open]).encode())
    os._exit(0)


def _end_of(child: int, limits: Limits) -> tuple[int, bool]:
    """The status of a child, which is killed after its time on the clock, and whether lack of time ended it."""
    deadline_s = time.monotonic() + limits.clock_s
    while True:
        is_late = time.monotonic() >= deadline_s
        if is_late:
            os.kill(child, signal.SIGKILL)
        ended, status, usage = os.wait4(child, 0 if is_late else os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            is_past = code < 0 and (usage.ru_utime + usage.ru_stime) >= 0.9 * limits.cpu_s  # time is counted in ticks
            return code, is_late or code == -signal.SIGXCPU or is_past
        time.sleep(_TICK_S)


def _kill_children() -> bool:
    """Kill the processes that a confined one left behind; return whether there were any."""
    lists = Path("/proc/self/task").glob("*/children")
    children = [int(child) for path in lists for child in path.read_text("ascii").split()]
    for child in children:
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return bool(children)


def _unshare(libc: ctypes.CDLL) -> bool:
    """Leave the network, and with the next fork the view of other processes. Return whether the system permitted it."""
    user, group = os.getuid(), os.getgid()
    try:
        if libc.unshare(_NEW_USER | _NEW_PROCESSES | _NEW_NETWORK | _NEW_IPC):
            return False
    except AttributeError:  # no Linux
        return False
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with contextlib.suppress(OSError):
            Path(f"/proc/self/{name}").write_text(text, "ascii")
    return True


def _confine(libc: ctypes.CDLL, folder: Path, readable: Sequence[str], limits: Limits, keep: int) -> bool:
    """Restrict this process for good. Return whether it can access only permitted files."""
    die_with_parent()
    printed = os.open(folder / "printed", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, end in enumerate((nothing, printed, printed)):
        os.dup2(end, number)
    os.closerange(3, keep)  # above all the channel to the process that judges
    os.closerange(keep + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    os.chdir(folder)
    seconds = max(1, int(limits.cpu_s + 0.999))
    # The first limit sends a signal, which the first process of a namespace ignores; the second surely ends it.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    memory_bytes = _virtual_bytes() + limits.memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_bytes, limits.file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return _restrict_files(libc, folder, [*readable, *_SYSTEM])


def _virtual_bytes() -> int:
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text("ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _restrict_files(libc: ctypes.CDLL, folder: Path, readable: Sequence[str]) -> bool:
    """Let this process read these places and its folder, and write the latter alone, by Landlock; whether it worked."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return False
    version = libc.syscall(_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return False
    rights = (1 << _BITS.get(version, 16)) - 1
    attributes = struct.pack("<QQQ", rights, 0b11 * (version >= 4), 0b11 * (version >= 6))
    ruleset = libc.syscall(_RULESET, attributes, ctypes.c_size_t(8 * (1 + (version >= 4) + (version >= 6))), 0)
    if ruleset < 0:
        return False
    allowed = [(str(folder), rights), *((each, _READ) for each in readable)]
    for path, right in [*allowed, *((each, _READ_FILE | _WRITE_FILE) for each in DEVICES)]:
        for place in _open_place(path):
            own = right & rights & (-1 if os.path.isdir(path) else _OF_A_FILE)
            libc.syscall(_RULE, ruleset, 1, struct.pack("<Qi", own, place), 0)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    is_done = bool(libc.syscall(_RESTRICT, ruleset, 0) == 0)
    os.close(ruleset)
    return is_done


def _open_place(path: str) -> Iterator[int]:
    """The descriptor of a path for a rule, if it exists."""
    with contextlib.suppress(OSError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        yield place
        os.close(place)
