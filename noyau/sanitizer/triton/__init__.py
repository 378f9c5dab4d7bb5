"""Watched kernels of Triton in Triton's interpreter, without a GPU."""
