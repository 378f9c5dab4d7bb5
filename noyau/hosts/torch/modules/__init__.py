"""Graphs of ATen operators: rewritten, run, captured as CUDA graphs."""
