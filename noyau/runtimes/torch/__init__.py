"""Kernels on tensors of PyTorch, and ops as operators of it."""
