from __future__ import annotations

import pytest

from noyau.toolchain.c.compiler import header_flags


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ('#include "own.h"\n', ()),
        ("#include <own.h>\n", ("-I{}",)),
        ("#include <own.h>\n", ("-isystem", "{}")),
        ("int x;\n", ("-include", "{}/own.h")),
        ('#define H "own.h"\n#include H\n', ()),
        ("#include H\n", ('-DH="own.h"',)),
    ],
)
def test_what_headers_hold_is_in_the_digest(tmp_path, text, flags):
    (tmp_path / "sub").mkdir()
    (tmp_path / "own.h").write_text('#include "sub/own.inl"\n', encoding="ascii")
    seen = set()
    for content in ("3", "4"):
        (tmp_path / "sub" / "own.inl").write_text(content, encoding="ascii")
        seen.add(header_flags(text, [flag.format(tmp_path) for flag in flags], tmp_path))
    assert len(seen) == 2


def test_a_text_without_headers_of_its_own_needs_no_flags(tmp_path):
    assert header_flags('#include <math.h>\n#include "gone.h"\n', ("-O2", "-I/gone"), tmp_path) == ()
    assert header_flags("#include TWO(a, b)\n", (), tmp_path)[:2] == ("-iquote", str(tmp_path))
