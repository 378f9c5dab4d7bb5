"""`noyau show`: groups, cuts and the source of kernels."""
