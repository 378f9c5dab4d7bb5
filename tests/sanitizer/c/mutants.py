"""Mutants of right kernels in CUDA C++ and OpenMP C, each with the kind that it must be found by.

A rule takes one thing away of which it is known what follows; a mutant is one rule at one place of one function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """`name` of the function as it is called now, and `of` the one that it was; the kinds that would be right; the
    rule, and the line of the original that it changed."""

    name: str
    of: str
    kinds: frozenset[str]
    rule: str
    line: int
    text: str


@dataclass(frozen=True)
class Rule:
    """What is looked for and what becomes of it; `needs`: what a function must have for that to do something."""

    name: str
    found: str
    becomes: str
    kinds: tuple[str, ...]
    needs: str = ""


RACE, TWICE, SHARED = ("race",), ("race", "written-twice"), ("race", "uninitialised")
OUTSIDE, UNWRITTEN, UNSET, BARRIER = ("out-of-bounds",), ("unwritten",), ("uninitialised",), ("divergent-barrier",)
FIRST = r"int i = blockIdx\.x \* (?:blockDim\.x|block\.size\(\)) \+ [\w.()]+"
LOOP = r"for \(int i = blockIdx\.x \* blockDim\.x \+ threadIdx\.x"
STRIDE = r"i \+= (?:blockDim\.x \* gridDim\.x|gridDim\.x \* blockDim\.x)\) out"

CUDA = (
    Rule("an atomic becomes an addition", r"atomicAdd\(&([^,;]+?), ([^;]*)\);", r"\1 += \2;", RACE),
    Rule("an atomic becomes an addition", r"atomicAdd\((\w+), ([^;]*)\);", r"*\1 += \2;", RACE),
    Rule("a barrier is dropped", r"__syncthreads\(\);", ";", SHARED),
    Rule("a syncwarp is dropped", r"__syncwarp\(\);", ";", SHARED),
    Rule("a barrier is in one branch", r"__syncthreads\(\);", "if (threadIdx.x % 2) __syncthreads();", BARRIER),
    Rule("a guard is dropped", r"if \(i < n\) (out\[i\] =)", r"\1", OUTSIDE),
    Rule("a guard leaves out the last", r"if \(i < n\) out\[i\] =", "if (i < n - 1) out[i] =", UNWRITTEN),
    Rule("a guard lets in one more", r"if \(i < n\) out\[i\] =", "if (i <= n) out[i] =", OUTSIDE),
    Rule("a guard is dropped", r"i < n \? x\[i\] : 0\.0f", "x[i]", OUTSIDE),
    Rule("a guard lets in one more", r"i < n \? x\[i\] : 0\.0f", "i <= n ? x[i] : 0.0f", OUTSIDE),
    Rule("a guard is dropped", r"if \(row >= m \|\| col >= n\) return;", "", OUTSIDE),
    Rule("a guard is dropped", r"if \(row < m && col < n\) c", "c", ("out-of-bounds", "race", "written-twice")),
    Rule("a guard is dropped", r"if \(i < cols && j < rows\) out", "out", ("out-of-bounds", "race", "uninitialised")),
    Rule("a loop begins late", rf"({LOOP}); i < n; ({STRIDE})", r"\1 + 1; i < n; \2", UNWRITTEN),
    Rule("a loop goes on too long", r"i < n; i \+=", "i <= n; i +=", OUTSIDE),
    Rule("a stride is too short", STRIDE, "i += blockDim.x) out", TWICE),
    Rule(
        "shared memory is not set", r"for \(int b = threadIdx\.x; b < 10; b \+= blockDim\.x\) own\[b\] = 0;", ";", UNSET
    ),
    Rule("shared memory is not set", r"if \(threadIdx\.x == 0\) most = 0;", ";", UNSET),
    Rule("everyone writes", r"if \(threadIdx\.x == 0\) (out\[0\]|most|sum) =", r"\1 =", TWICE),
    Rule("everyone writes", r"if \((?:lane|t) == 0\) (warps\[warp\]) =", r"\1 =", TWICE),
    Rule("a fence is dropped", r"__threadfence\(\);", ";", RACE),
    Rule(
        "who is done leaves early",
        rf"(?<!\()({FIRST})(, lane = threadIdx\.x & 31)?;",
        r"\1\2; if (i >= n) return;",
        BARRIER,
        r"__syncthreads|_sync\(|\.shfl",
    ),
    Rule(
        "a block writes into the next",
        r"out\[blockIdx\.x \* cols \+ j\]",
        "out[blockIdx.x * (cols - 1) + j]",
        ("race", "unwritten"),
    ),
    Rule("the index is off by one", r"out\[t\] =", "out[t + 1] =", OUTSIDE),
)

OPENMP = (
    Rule("a reduction is dropped", r" reduction\(\+ : sum\)", "", RACE),
    Rule("an atomic is dropped", r"#pragma omp atomic", "", RACE),
    Rule("a lock is dropped", r"#pragma omp critical(?:\(\w+\))?", "", RACE),
    Rule("a lock is not taken", r"omp_set_lock\([^;]*\);", ";", RACE),
    Rule("a barrier is dropped", r"#pragma omp barrier", "", RACE),
    Rule("nobody waits", r"#pragma omp (for|single)$", r"#pragma omp \1 nowait", RACE),
    Rule("everyone does it", r"#pragma omp single$", "", TWICE),
    Rule("nobody waits for the tasks", r"#pragma omp taskwait", "", ("race", "out-of-bounds", "uninitialised")),
    Rule("a dependence is dropped", r" depend\((?:in|out) : half\[i\]\)", "", RACE),
    Rule("the order is dropped", r"#pragma omp ordered", "", RACE),
    Rule(
        "a variable is shared",
        r"(double sum = 0;\n)(            for \(int l)",
        "static double sum;\n            sum = 0;\n\\2",
        RACE,
    ),
    Rule("the loop goes on too long", r"i < n; i\+\+\) (out\[i\]|sum \+= x\[i\]|own)", r"i <= n; i++) \1", OUTSIDE),
    Rule("the loop ends early", r"i < n; i\+\+\) out\[i\] = x", "i < n - 1; i++) out[i] = x", UNWRITTEN),
    Rule(
        "the loop begins late",
        r"int i = 0; i < n; i\+\+\) out\[i\] = x",
        "int i = 1; i < n; i++) out[i] = x",
        UNWRITTEN,
    ),
    Rule(
        "a neighbour is written too",
        r"out\[i\] = x\[i\] \+ y\[i\];",
        "out[i] = x[i] + y[i], out[i ? i - 1 : 0] = 0;",
        RACE,
    ),
    Rule("memory is not set", r"memcpy\(from, x, n \* sizeof \*from\);", "", UNSET),
    Rule("own cells become one", r"partial\[me\] \+=", "partial[0] +=", RACE),
    Rule("pieces overlap", r"to = n \* \(me \+ 1\) / all", "to = n * (me + 1) / all + (me + 1 < all)", RACE),
    Rule("both sections write one", r"\*most = m;", "*least = m, *most = m;", TWICE),
    Rule("bounds are off by one", r"int i = 1; i < n - 1; i\+\+\) to", "int i = 0; i < n - 1; i++) to", OUTSIDE),
)


def mutants(text: str, rules: tuple[Rule, ...], first: int = 0) -> Iterator[Mutant]:
    """Every mutant of every function of a text, each under a name of its own."""
    number = first
    for match in re.finditer(r"^[^\s#/}].*?\b(\w+)\([^;{]*\)\s*\{\n(?:.*\n)*?\}$", text, re.MULTILINE):
        whole, name = match[0], match[1]
        for rule in rules if not whole.startswith(("static", "__inline__", "__device__")) else ():
            for place in re.finditer(rule.found, whole, re.MULTILINE):
                if not re.search(rule.needs, whole):
                    continue
                made = f"{name}_{number}"
                body = whole[: place.start()] + place.expand(rule.becomes) + whole[place.end() :]
                line = text.count("\n", 0, match.start() + place.start()) + 1
                yield Mutant(
                    made, name, frozenset(rule.kinds), rule.name, line, re.sub(rf"\b{name}\b", made, body, count=1)
                )
                number += 1
