"""Language `triton`: kernels that Triton compiles for GPUs, and the Python function that launches them."""
