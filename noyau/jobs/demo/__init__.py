"""`noyau demo`: the optimizer on a small LLaMA, whose two exports lie in `models`."""
