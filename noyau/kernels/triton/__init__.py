"""User kernels in Triton."""
