"""`noyau.optimize` for modules whose tensors lie on a GPU."""
