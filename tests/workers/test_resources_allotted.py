from __future__ import annotations

import os
from pathlib import Path

import pytest

from noyau.workers.resources import memory_bytes, processors

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
GIB = 1 << 30


def machine(root: Path, group: str, files: dict[str, str]) -> Path:
    """A file system with the control groups that these files make."""
    for name, text in {
        "proc/self/cgroup": group,
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="ascii")
    return root


def test_here():
    assert 1 <= processors() <= CORES
    assert memory_bytes() >= 1 << 28


def test_a_machine_that_tells_nothing(tmp_path):
    assert processors(tmp_path) == CORES
    assert memory_bytes(tmp_path) > 0


@pytest.mark.parametrize(
    ("group", "files", "share"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}, 1000),
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "40000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "nonsense"}, 1000),
        ("0::/\n", {"cpu.max": ""}, 1000),
        ("0::/a/b\n", {"a/cpu.max": "100000 100000", "a/b/cpu.max": "max 100000"}, 1),
        ("0::/gone/b\n", {"cpu.max": "100000 100000"}, 1),
        ("0::/../escape\n", {"cpu.max": "100000 100000"}, 1),
        ("3:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, 1000),
        ("3:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "100000", "cpu/a/cpu.cfs_period_us": "100000"}, 1),
    ],
)
def test_processors_are_those_of_the_group(tmp_path, group, files, share):
    assert processors(machine(tmp_path, group, files)) == min(CORES, share)


@pytest.mark.parametrize(
    ("group", "files", "limit"),
    [
        ("0::/a\n", {"a/memory.max": f"{GIB}\n"}, GIB),
        ("0::/a\n", {"a/memory.max": "max\n", "memory.max": f"{GIB // 2}\n"}, GIB // 2),
        ("0::/a\n", {"a/memory.max": "max\n"}, None),
        ("4:memory:/a\n", {"memory/a/memory.limit_in_bytes": f"{GIB}\n"}, GIB),
        ("4:memory:/a\n", {"memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, None),
    ],
)
def test_memory_is_that_of_the_group(tmp_path, group, files, limit):
    whole = memory_bytes(tmp_path)
    assert memory_bytes(machine(tmp_path, group, files)) == (limit if limit is not None else whole)
