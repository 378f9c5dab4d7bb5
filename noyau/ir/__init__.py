"""The two IRs, graph and loops: their tables, their checks, and the interpreters that define them."""
