"""The command `noyau cache`."""

from __future__ import annotations

from noyau.jobs import cli
from noyau.toolchain import cache


def test_cache_tells_and_clears(empty_cache, capsys):
    assert cli.main(["cache"]) == 0
    assert capsys.readouterr().out == f"{empty_cache}: 0.0 MiB of at most 512 MiB\n"
    cache.store(cache.digest("x"), ".so", lambda path: path.write_bytes(bytes(3 * 2**20)))
    cli.main(["cache"])
    assert "3.0 MiB of at most" in capsys.readouterr().out
    assert cli.main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"removed 1 file, 3.0 MiB, from {empty_cache}\n"
    assert list(empty_cache.iterdir()) == []
