"""Kernels that machines write, in the formats of the benchmarks that ask for them."""
