"""What a call of an op does: its key, the kernels made of its reference, and which of all kernels runs."""
