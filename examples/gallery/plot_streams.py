"""Session 5: streams, copies beside kernels, and the event that was forgotten
===========================================================================

A GPU copies in, computes, and copies out at the same time, if the three are on different streams and the host's memory
is pinned. Memory that the system may move has to be copied once more before, and nothing else runs meanwhile. Work
within one stream is in order; work on two streams has no order at all, unless an event sets one.

The broken twin forgets that event. On a GPU its numbers are nearly always right, because a copy is usually done by
then; ``check`` knows the order, stream by stream, and needs no GPU.

Run it: ``python examples/gallery/plot_streams.py`` (needs ``pip install 'noyau-kernels[check-c]'`` and a C compiler).
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

import noyau
from noyau.errors import NoyauError

# %%
# Two streams in CUDA C++
# -----------------------
# One stream copies, the other computes. The event between them is recorded after the copy, and the other stream waits
# for it.
TEXT = """
__global__ void twice(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
void on_two_streams(const float *x, float *out, int n) {
    float *dx, *dout;
    cudaStream_t copies, kernels;
    cudaEvent_t there;
    cudaStreamCreate(&copies);
    cudaStreamCreate(&kernels);
    cudaEventCreate(&there);
    cudaMalloc(&dx, n * sizeof(float));
    cudaMalloc(&dout, n * sizeof(float));
    cudaMemcpyAsync(dx, x, n * sizeof(float), cudaMemcpyHostToDevice, copies);
    cudaEventRecord(there, copies);
    cudaStreamWaitEvent(kernels, there);
    twice<<<(n + 127) / 128, 128, 0, kernels>>>(dx, dout, n);
    cudaMemcpyAsync(out, dout, n * sizeof(float), cudaMemcpyDeviceToHost, kernels);
    cudaStreamSynchronize(kernels);
}
"""


@noyau.op("f32[n] -> out: f32[n]")
def doubled(x):
    return 2 * x


doubled.kernel(TEXT, language="cuda", entry="on_two_streams", name="with_an_event")
without = TEXT.replace("    cudaStreamWaitEvent(kernels, there);\n", "")
doubled.kernel(without, language="cuda", entry="on_two_streams", name="without_an_event")


def main() -> None:
    # %%
    # The order of the operations
    # ---------------------------
    print(noyau.check(doubled, generated=False, budget_s=0.5))

    # %%
    # The same, done by noyau
    # -----------------------
    # Each chunk goes to one of three streams. Within a stream no event is needed, and the copies of one chunk run
    # beside the kernels of another. The timeline comes from CUDA's own events; chrome://tracing and Perfetto draw it.
    chunks = [np.full(1 << 20, number, np.float32) for number in range(6)]
    timeline = Path(tempfile.mkdtemp(prefix="noyau-")) / "timeline.json"
    try:
        results = list(noyau.overlap(doubled, chunks, trace=timeline))
    except NoyauError as error:
        print(error)
        return
    print("right:", all(np.array_equal(result, 2 * chunk) for result, chunk in zip(results, chunks, strict=True)))
    for event in json.loads(timeline.read_text())["traceEvents"][:6]:
        print(f"{event['tid']}: {event['name']:28} {event['ts']:9.0f} to {event['ts'] + event['dur']:9.0f} us")


if __name__ == "__main__":
    main()
