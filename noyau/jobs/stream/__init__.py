"""`noyau stream`."""
