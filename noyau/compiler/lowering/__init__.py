"""Groups into kernels: every tensor is a function of an index tuple; views are index arithmetic, never code."""
