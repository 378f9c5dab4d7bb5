from __future__ import annotations

import re

import pytest

from noyau.sanitizer.c.build import with_own_calls
from noyau.sanitizer.c.pragmas import pragmas_of, remedy_of_race, variable_calls

TEXT = """void f(int *a, int n) {
#pragma omp parallel
#pragma omp single
    {
        a[0] = 1;
    }
#pragma omp parallel
    {
#pragma omp for nowait
        for (int i = 0; i < n; ++i)
            if (i) a[i] = 1;
            else a[i] = 2;
        a[n] = a[0];
#pragma omp master
        a[1] = 3;
        a[2] = a[1];
        a[3] = a[2];
#pragma omp critical
        a[4] = a[3];
    }
#pragma omp barrier
}
"""
TEAM = ("thread 0 of 2", "thread 1 of 2")
WAIT = "wait for the task before: #pragma omp taskwait, a taskgroup around it, or depend on both"
ORDER = "order the two tasks: by depend(out:) and depend(in:), or with #pragma omp taskwait between them"
LANES = "leave simd out, or say with safelen(n) how far apart iterations are that may run together"


def test_a_pragma_is_of_the_statement_below_it():
    spans = [(each.words, each.first, each.last) for each in pragmas_of(TEXT)]
    assert spans[:5] == [
        ("parallel", 3, 6),
        ("single", 4, 6),
        ("parallel", 8, 20),
        ("for nowait", 10, 12),
        ("master", 15, 15),
    ]
    assert not list(pragmas_of("#pragma omp parallel\n{\n"))


@pytest.mark.parametrize(
    ("lines", "owners", "remedy"),
    [
        ((13, 11), TEAM, "line 9 says nowait: leave that out, or put #pragma omp barrier before line 13"),
        ((15, 16), TEAM, "no thread waits for master: put #pragma omp barrier before line 16"),
        ((17, 16), TEAM, "put #pragma omp barrier before line 17"),
        ((19, 17), TEAM, ""),
        ((16, 16), TEAM, ""),
        ((5, 11), TEAM, ""),
        ((5, 11), ("thread 1", "the main thread"), ""),
        ((5, 6), ("a task", "thread 0 of 2"), WAIT),
        ((5, 6), ("a task", "a task"), ORDER),
        ((5, 5), ("a task", "a task"), ""),
        ((5, 5), ("iteration 1 of a simd loop", "iteration 0 of a simd loop"), LANES),
    ],
)
def test_a_remedy_names_what_is_missing(lines, owners, remedy):
    assert remedy_of_race(TEXT, *lines, owners) == remedy


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("#pragma omp parallel private(a, b) firstprivate(b)\n{ c = a + b; }", ["a"]),
        ("#pragma omp parallel private(i, t)\n#pragma omp for\nfor (i = 0; i < 9; ++i) t += i;", ["t"]),
        (
            "#pragma omp parallel for collapse(2) lastprivate(i, t) private(j)\nfor (i = 0;;) for (j = 0;;) t += i;",
            ["t"],
        ),
        ("#pragma omp parallel private(a, j)\n{ for (j = 0; j < 9; ++j) b = a; }", ["a"]),
        ("#pragma omp parallel private(a, b)\n{ if (n) { a = 1; } b = 2; a += b; }", ["a"]),
        ("#pragma omp parallel private(a, b)\n{ a = b == 1; }", ["b"]),
        ("#pragma omp parallel sections private(a)\n{ a = 1; }", []),
        ("#pragma omp parallel for simd private(a)\nfor (;;) { a = 1; }", []),
        ("#define a b\n#pragma omp parallel private(a)\n{ a = 1; }", []),
        (
            "#pragma omp parallel\n{ a = 1; b++; int c = 2, d = 3; x->e = x.f = 4; *g = a == h;\n#pragma omp task\n; }",
            ["a", "b"],
        ),
        ("#pragma omp parallel\n{ a = 1; }", []),
        ("#pragma omp parallel\n{ enum { b = 1, c = 2 }; a = b;\n#pragma omp task\n; }", ["a"]),
        ("#pragma omp parallel\n{ for (j = 0; j < 9; j++)\n#pragma omp task shared(b, j)\nb[j] = 1; }", ["j"]),
    ],
)
def test_variables_of_a_construct_are_named_where_its_body_begins(text, names):
    places = [(text[place:], call) for place, call in variable_calls(text, is_cpp=False)]
    assert re.findall(r"&(\w+)", "".join(call for _, call in places)) == names
    assert len(places) == 2 * bool(names)
    assert all(rest.startswith("{") or "= i;" in rest for rest, _ in places[:1])


def test_a_register_has_an_address():
    text = 'register int a; /* register */\nchar *b = "register";\n'
    assert with_own_calls(text, is_cpp=False) == text.replace("register int", " int", 1)


def test_a_scan_names_no_schedule():
    text = "#pragma omp parallel for reduction(inscan, + : a)\nfor (;;) {}\n"
    assert with_own_calls(text, is_cpp=False) == text
