"""User kernels and generated programs: parameters, calls, references, trust and certificates."""
