"""Tracing of NumPy functions into graphs: a function is called once, on arrays that record the operations on them."""
