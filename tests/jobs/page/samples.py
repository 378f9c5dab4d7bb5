"""Pages of every kind of section, with hostile names in all of them. Support for tests."""

from __future__ import annotations

from noyau.jobs.page.document import Page, Section, SizedTime, graphs, lines, summary, sweeps, table

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u2028&amp;\ud800"


def chain(count: int, name: str = "node") -> Section:
    """A drawing of a chain, each fourth node in a group of two that leads to a source."""
    nodes = [
        {
            "lines": [f"Op{number}", f"{number} us"],
            "name": f"{name}{number}",
            "facts": {"node": f"Op#{number}"},
            **({"group": f"kernel{number // 8}", "source": "kernel0"} if number % 4 == 0 else {}),
        }
        for number in range(count)
    ]
    edges = [[number, number + 1, f"v{number}", "too large" if number % 5 == 0 else ""] for number in range(count - 1)]
    return {"title": name, "nodes": nodes, "edges": edges, "note": ""}


def page(nodes: int = 24) -> Page:
    """A page with a section of each kind."""
    times = [SizedTime(n, 1e-9 * n, 0.9e-9 * n, 1.2e-9 * n, 8 * n, 2 * n) for n in (1_000, 10_000, 100_000)]
    finding = {
        "severity": "error", "kind": "race", "kernel": EVIL, "place": "/a/file.py:2", "other": "/a/file.py:3",
        "owners": ["iteration 1", EVIL], "cell": [0, 1], "size": "n = 2", "message": EVIL, "remedy": "mend it",
        "change": "", "drawing": [" 2  writes", EVIL],
    }  # fmt: skip
    rows = [
        {"kernel": "kernel0", "verdict": "FASTER", "speedup": (2.0, 1.5, 2.5), "after_s": 2e-3, "bytes": 2048},
        {"kernel": EVIL, "verdict": "SLOWER", "speedup": (0.5, 0.4, 0.6), "after_s": 3e-6, "bytes": None},
        {"kernel": "other", "verdict": "SAME", "speedup": (1.0, None, None), "after_s": 1.0, "bytes": 1},
    ]
    case = {"case": EVIL, "captured": True, "cells": 4, "worst_ratio": 0.5}
    certificate = {"cases": [{**case, "kernel": {"worst_ulp": 1.0}, "unfused": {"worst_ulp": 2.0}}]}
    sections = [
        summary(EVIL, "good", [EVIL], {"model": EVIL}),
        graphs("Graphs", [chain(nodes, "before"), chain(nodes // 2, "after")]),
        table("Kernels", rows, EVIL),
        sweeps("Times", "n", {"first": times, EVIL: times[:2]}),
        {
            "kind": "findings",
            "title": "Findings",
            "findings": [finding],
            "files": {"/a/file.py": f"one\n{EVIL}\nthree\n"},
        },
        {"kind": "pictures", "title": "Cells", "pictures": [{"title": EVIL, "svg": "<svg/>", "text": EVIL}]},
        lines("Notes", [EVIL]),
    ]
    source = {"text": f"int main;\n{EVIL}", "evidence": EVIL, "about": EVIL, "certificate": certificate}
    return Page(EVIL, "optimize", sections, {"kernel0": source})
