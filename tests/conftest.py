"""What every test runs under: a cache of kernels of the tests' own, kept between runs beside pytest's."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def _cache_of_the_tests(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    kept = getattr(request.config, "cache", None)  # None with -p no:cacheprovider
    folder = tmp_path_factory.mktemp("cache") if kept is None else kept.mkdir("noyau")
    folder.chmod(0o700)
    os.environ["XDG_CACHE_HOME"] = str(folder)


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """A cache folder of this test alone; the result is where noyau makes its own in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "noyau"
