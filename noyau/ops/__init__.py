"""Op: one reference, many kernels, and the call that picks one."""
