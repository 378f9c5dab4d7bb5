"""Numba-CUDA kernels without a GPU: threads are generators that step from barrier to barrier, over the shadow."""
