"""Ops as functions of databases: of SQLite in Python, of DuckDB in C."""
