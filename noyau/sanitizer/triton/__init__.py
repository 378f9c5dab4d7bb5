"""Kernels of Triton in Triton's interpreter, without a GPU, every access of a program watched."""
