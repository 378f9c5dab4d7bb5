"""Texts of language `numba_cuda`."""
