"""Texts of language `cuda`: NVRTC, by way of cuda.core."""
