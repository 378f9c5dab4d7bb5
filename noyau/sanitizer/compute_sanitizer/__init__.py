"""NVIDIA's compute-sanitizer as a second opinion, where there is a GPU: the same kernels, one report."""
