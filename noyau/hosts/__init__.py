"""Hosts, the frameworks that run kernels: NumPy, torch, onnxruntime."""
