"""Machine-written kernels, in the formats of the benchmarks that ask for them."""
