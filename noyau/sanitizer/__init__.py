"""Kernels that run with every access to memory watched: races, bounds, unwritten cells."""
