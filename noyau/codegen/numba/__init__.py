"""Language `numba`: Python that Numba compiles for the CPU."""
