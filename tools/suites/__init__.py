"""Suites of the field, each run against a checkout that the user has: `python -m tools.suites.NAME CHECKOUT`."""
