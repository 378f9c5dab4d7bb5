"""Models of PyTorch made to call the ops of `noyau.nn`."""
