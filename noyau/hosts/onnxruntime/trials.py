"""Trials of a fused model before it is handed over: it opens with its library and without, and onnx takes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from noyau.errors import ModelError
from noyau.frontends import onnx as frontend
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.hosts.onnxruntime.source_model import LARGE, SourceModel, external_bytes, foreign_operators

if TYPE_CHECKING:
    import onnx


def fault_alone(original: SourceModel, fused: onnx.ModelProto) -> str:
    """Why a fused twin of a model does not open where its library is not at hand, or nothing."""
    if foreign_operators(original.runnable):
        return ""  # nor does the original
    try:
        open_session(fused.SerializeToString(), folder=original.folder, optimized=False, prepacked=False)
    except ModelError as error:
        return str(error)
    return ""


def require_opening(path: Path, library: Path | None, before: Path | None = None) -> None:
    """ModelError where a written model does not open with its library, if there is one, or without, as a user opens it,
    or where onnx's checker refuses it and not the file `before`."""
    model = frontend.parse(path)
    message = (
        "the fused model is not fit to be used, and nothing is written: {}; leave out a group of it and report this"
    )
    if (fault := frontend.checker_fault(path)) and not (before and frontend.checker_fault(before)):
        raise ModelError(message.format(f"onnx's checker says {fault}"))
    if foreign_operators(model):
        return
    for kernels in dict.fromkeys((library, None)):
        try:
            open_session(path, kernels, threads=1, prepacked=external_bytes(model) < LARGE)
        except ModelError as error:
            raise ModelError(message.format(f"{'with' if kernels else 'without'} its library, {error}")) from error
