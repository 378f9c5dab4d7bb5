"""Patches that make models of PyTorch call the ops of `noyau.nn`."""
