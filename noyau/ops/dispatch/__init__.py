"""Dispatch of a call of an op: its key, the kernels of its reference, and the choice among all kernels."""
