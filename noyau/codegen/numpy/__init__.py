"""Graphs printed as NumPy source."""
