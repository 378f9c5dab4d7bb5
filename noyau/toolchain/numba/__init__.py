"""Numba: source text to a compiled function."""
