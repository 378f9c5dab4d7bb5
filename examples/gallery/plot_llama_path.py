"""Exam: fuse a LLaMA exported to ONNX
====================================

The exam of the course: take a LLaMA that PyTorch exported, find the paths that move memory rather than compute, replace
each by one kernel, show that it is right and that it wins, and defend the gain against its ceiling.

Run it: ``python examples/gallery/plot_llama_path.py`` (needs ``pip install 'noyau-kernels[onnx]'`` and a C compiler).
"""

from __future__ import annotations

from importlib.resources import as_file, files

import numpy as np

import noyau
from noyau.codegen.plan import PlannedKernel
from noyau.ir.graph_interpreter import evaluate
from noyau.verify.adversarial import cases
from noyau.verify.trial import certify

# %%
# Where the model is cut, and why
# -------------------------------
# Groups follow from index maps and dependence. A softmax, a norm with the residual before it, and a rotation by cos and
# sin are each one loop nest, however the exporter spells them. A MatMul is a library call, so it is a boundary.
with as_file(files("noyau.jobs.demo.models") / "llama_tiny_dynamo.onnx") as model:
    shown = noyau.show(model)
operators = [label for label in shown.labels if label]
print(shown.title, "has", len(operators), "operators;", len(shown.plan.kernels), "kernels cover most of them:")
width = max(len(kernel.operator) for kernel in shown.plan.kernels)
for kernel in shown.plan.kernels:
    print(f"  {kernel.operator:{width}} {len(kernel.groups)}x  {' '.join(kernel.replaces)}")


# %%
# One kernel, as text
# -------------------
# The norm: two passes over a row, the sum of squares in partial states so that it vectorises, all views gone.
def find(word: str) -> PlannedKernel:
    """The first kernel with this word in its name."""
    return next(kernel for kernel in shown.plan.kernels if word in kernel.operator)


norm = find("sum_rsqrt")
text = shown.source(norm.operator)
print(text[text.index("static int32_t " + norm.operator) :].split("\n\n\n")[0][:1600])

# %%
# The broken twins
# ----------------
# Two classic mistakes, which give plausible numbers. The certificate judges each cell against float64, beside the error
# of the unfused operators, and names a cell for each mistake.
group = norm.groups[0]
graph = group.original
names = [node.output for node in graph.inputs]


def right(inputs: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """The group as it is, in float32."""
    results = evaluate(graph, dict(zip(names, inputs, strict=True)))
    return [results[name] for name in graph.outputs]


def last_column_missed(inputs: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """The loop ends one column early: the last cell of each row keeps its old value."""
    results = right(inputs)
    for result in results:
        result[..., -1:] = 0
    return results


def half_precision_inside(inputs: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Intermediate values in float16: the shape is right, the numbers look right, and they have eleven bits."""
    return [result.astype(np.float16).astype(np.float32) for result in right(inputs)]


for function in (right, last_column_missed, half_precision_inside):
    rng = np.random.default_rng(0)
    certificate = certify(graph, function, cases(graph, {"batch": 1, "sequence": 8}, rng), name=function.__name__)
    print(f"{function.__name__}: {certificate.summary()[:230]}")

# %%
# The whole job
# -------------
# The kernels are checked on captured activations and on adversarial inputs, and timed in pairs against onnxruntime with
# all its optimizations; losers are dropped. The ceiling is the most that fusing can gain: a model full of MatMul gains
# little.
with as_file(files("noyau.jobs.demo.models") / "llama_tiny_dynamo.onnx") as model:
    optimized = noyau.optimize(model)
print(optimized.report)

# %%
# And it still is the model: plain onnxruntime runs it.
session = optimized.session()
feeds = {"input_ids": np.arange(7, dtype=np.int64)[None], "attention_mask": np.ones((1, 7), np.int64)}
print("logits", session.run(None, feeds)[0].shape)
