"""`noyau.bench`: several implementations of one computation, timed against each other and against the machine."""
