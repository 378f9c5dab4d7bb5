"""From source text to a callable: compilers, their disk cache, and compiled libraries as Python functions."""
