"""Modules of PyTorch: their graphs cut into kernels that are checked, timed, and put back where they win."""
