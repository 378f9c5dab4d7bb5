"""Importers: Graphs from NumPy functions, ONNX models and torch modules."""
