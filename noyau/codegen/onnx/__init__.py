"""Printer of graphs as ONNX nodes. MissingExtraError where onnx is not installed."""

from noyau.frontends.onnx import onnx

__all__ = ["onnx"]
