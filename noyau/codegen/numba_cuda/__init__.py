"""Language `numba_cuda`: Python for Numba-CUDA."""
