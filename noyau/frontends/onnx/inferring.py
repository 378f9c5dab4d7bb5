"""ONNX's shape inference in a process of its own: on some malformed nodes it ends the process that it runs in."""

from __future__ import annotations

import select
import struct
import subprocess
import sys
from types import TracebackType

import onnx

_LONGEST_S = 30.0
_PROGRAM = """
import struct, sys
sys.path[:] = sys.argv[1:]
import onnx
source, sink = sys.stdin.buffer, sys.stdout.buffer
while True:
    head = source.read(8)
    if len(head) < 8:
        break
    model = onnx.ModelProto.FromString(source.read(struct.unpack("<q", head)[0]))
    try:
        found = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.value_info
    except Exception:
        found = []
    text = onnx.GraphProto(value_info=found).SerializeToString()
    sink.write(struct.pack("<q", len(text)) + text)
    sink.flush()
"""


class Inference:
    """A worker that starts when first asked, and again where a node has ended it. Use it in a `with`."""

    def __init__(self) -> None:
        self._worker: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Inference:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def types(self, model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
        """The types of the values that the nodes of a model make; nothing where inference fails."""
        try:
            return {value.name: value.type for value in onnx.GraphProto.FromString(self._asked(model)).value_info}
        except (OSError, EOFError, TimeoutError):
            self._end()
            return {}

    def _asked(self, model: onnx.ModelProto) -> bytes:
        worker = self._worker or self._started()
        assert worker.stdin is not None
        text = model.SerializeToString()
        worker.stdin.write(struct.pack("<q", len(text)) + text)
        worker.stdin.flush()
        return self._read(worker, struct.unpack("<q", self._read(worker, 8))[0])

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _PROGRAM, *sys.path]
        self._worker = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        return self._worker

    def _read(self, worker: subprocess.Popen[bytes], count: int) -> bytes:
        assert worker.stdout is not None
        found = b""
        while len(found) < count:
            if not select.select([worker.stdout], [], [], _LONGEST_S)[0]:
                raise TimeoutError
            piece = worker.stdout.read(count - len(found))
            if not piece:
                raise EOFError
            found += piece
        return found

    def _end(self) -> None:
        if self._worker is None:
            return
        worker, self._worker = self._worker, None
        worker.kill()
        worker.wait()
        for pipe in (worker.stdin, worker.stdout):
            if pipe is not None:
                pipe.close()
