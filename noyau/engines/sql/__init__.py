"""Ops as SQL functions, in Python for SQLite and in C for DuckDB; tables as sources and sinks."""
