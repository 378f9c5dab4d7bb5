"""Session 6: profile a model, read a trace
========================================

Where does the time of a model go, and what could fusing gain at most? A profiler answers the first question, and
Amdahl's law the second, before a single kernel is compiled. Both are easily misled: the broken twin below adds up the
times of the first run.

Run it: ``python examples/gallery/plot_profile_model.py`` (needs ``pip install 'noyau-kernels[onnx]'``).
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

import noyau
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.jobs.profile.traces import read_trace
from noyau.timing.comparison import compare
from noyau.timing.verdict import spell_s

# %%
# A small LLaMA at three sizes
# ----------------------------
# The sizes are one token (decoding), a short prompt, and a longer one. The profile gives the share of each operator
# type, and for each fusable path its present time and its largest gain. The floor of a path is the time in which this
# machine copies the bytes that the path must read and write.
MODEL = files("noyau.jobs.demo.models") / "llama_tiny_dynamo.onnx"
with as_file(MODEL) as path:
    profile = noyau.profile(path, dims={"sequence": [1, 128, 512]}, top=6, budget_s=0.5)
print(profile)

# %%
# What the ceiling means
# ----------------------
# If a share p of the time becomes s times as fast, the whole becomes 1 / (1 - p + p / s) times as fast. If all paths
# took no time, that would be 1 / (1 - p); but they must move their bytes. A MatMul stays a MatMul. So fusing gains most
# if nodes are many and small, with one token, or if values are large and pass through memory several times, as in the
# softmax of a long prompt; in between, the MatMuls decide.
for at in profile.at:
    share, matmul = at.paths_s / at.run_s, sum(s for name, s in at.outside.items() if "MatMul" in name) / at.run_s
    ceiling = "more than 20x" if at.ceiling is None else f"{at.ceiling:.2f}x"
    print(
        f"sequence={at.sizes['sequence']}: {share:.0%} in fusable paths, {matmul:.0%} in MatMul; "
        f"at most {1 / (1 - share):.2f}x if paths were free, {ceiling} at their floors"
    )

# %%
# Read a trace
# ------------
# onnxruntime writes an event for each node that ran: its begin and its duration, in whole microseconds. It has two
# traps. The first run fetches code and memory that later runs find in the caches. And the profiler writes shapes as
# text while its own clock runs: that takes some microseconds per node, more than a small node needs.
FEEDS = {"input_ids": np.ones((1, 1), np.int64), "attention_mask": np.ones((1, 1), np.int64)}
RUNS = 200
with as_file(MODEL) as path, tempfile.TemporaryDirectory() as folder:
    session = open_session(path, threads=1, trace=Path(folder))
    for _ in range(RUNS):
        session.run(None, FEEDS)
    runs = read_trace(Path(folder) / session.end_profiling())
for event in runs[0][:5]:
    print(f"  first run: {event.operator:10} began at {event.start_us:6} us, took {event.lasted_us:4} us")
for event in runs[-1][:5]:
    print(f"  last run:  {event.operator:10} began at {event.start_us:6} us, took {event.lasted_us:4} us")

# %%
# The broken twin
# ---------------
# The sum of the first run, by operator type: a profile without a warm-up. Beside it, the host clock around the first
# call.
with as_file(MODEL) as path:
    plain = open_session(path, threads=1)
start_s = time.perf_counter()
plain.run(None, FEEDS)
first_s = time.perf_counter() - start_s

first = Counter[str]()
for event in runs[0]:
    first[event.operator] += event.lasted_us
truth = profile.at[0]
print(f"a run takes {spell_s(truth.run_s)}, from {spell_s(truth.low_s)} to {spell_s(truth.high_s)}")
print(f"the host clock says of the first call {spell_s(first_s)}: {first_s / truth.run_s:.1f}x")
print(
    f"the nodes of the first run add up to {spell_s(first.total() * 1e-6)}: {first.total() * 1e-6 / truth.run_s:.1f}x"
)
for row in truth.operators[:6]:
    told = first[row.operator] / first.total()
    print(f"  {row.operator:12} {row.time_s / truth.run_s:4.0%} of a run, {told:4.0%} of the first one by its trace")

# %%
# Checked
# -------
# The parts of a profile must add up to the run; otherwise something was counted twice or not at all. The clock of noyau
# warms up, takes both sides in turn and looks at the ratio within pairs. It does not find a session faster than itself,
# as the host clock did.
parts_s = sum(node.time_s for node in truth.nodes) + truth.between_s
assert abs(parts_s / truth.run_s - 1) < 1e-6, "the parts of the profile do not add up to a run"
print(f"nodes {spell_s(parts_s - truth.between_s)} + the rest {spell_s(truth.between_s)} = {spell_s(truth.run_s)}")
start_s = time.perf_counter()
plain.run(None, FEEDS)
print(f"host clock: the first call, then the second: {first_s / (time.perf_counter() - start_s):.1f}x as fast")
print("noyau's:    the session against itself:", compare(*[lambda: plain.run(None, FEEDS)] * 2, budget_s=0.5))
