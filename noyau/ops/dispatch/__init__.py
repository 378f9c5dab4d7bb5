"""Dispatch of a call of an op: its key, the kernels made of its reference, and which of all kernels runs."""
