"""Programs generated from the reference of an op: kernels, and library calls between them."""
