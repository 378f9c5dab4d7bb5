"""Ops on tensors of PyTorch: dispatch, autograd, fake kernels."""
