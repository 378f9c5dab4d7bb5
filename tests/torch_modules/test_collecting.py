"""Where no garbage is collected."""

from __future__ import annotations

import gc
from contextlib import suppress

import pytest

pytest.importorskip("torch")

from noyau.torch_modules.collecting import without_collections


@pytest.mark.parametrize("collects", [True, False])
def test_collections_are_as_they_were_afterwards(collects):
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with suppress(KeyError), without_collections():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()
