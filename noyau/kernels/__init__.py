"""Kernels that people write: how their parameters are read, how they are called, and what they may do wrong."""
