"""Triton: source text to compiled launches."""
