"""Lint of kernels and scripts: warnings on right code that wastes time or will fail at other sizes, with remedies."""
