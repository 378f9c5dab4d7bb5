"""Hosts, the places where kernels run as citizens: NumPy, torch, onnxruntime."""
