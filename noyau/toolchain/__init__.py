"""From source text to a callable: compilers, their disk cache, and built libraries as Python functions."""
