"""`noyau.optimize` for modules whose tensors are on a GPU."""
