"""NVIDIA's compute-sanitizer as a second opinion on a GPU: the same kernels, one report."""
