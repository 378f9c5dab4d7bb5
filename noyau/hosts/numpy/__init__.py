"""Calls of kernels from NumPy: from the arguments to the results in a few hundred nanoseconds."""
