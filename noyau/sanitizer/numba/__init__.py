"""Kernels of Numba for the CPU, watched: each prange's iterations are owners."""
