"""Texts of language `cuda`: NVRTC, through cuda.core."""
