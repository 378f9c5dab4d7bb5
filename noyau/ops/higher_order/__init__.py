"""Ops made of a function of numbers: map, zip and reduce."""
