"""The small models of `noyau demo`."""
