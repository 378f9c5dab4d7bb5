"""`noyau.bench`: the ways to compute one thing, timed side by side against each other and against the machine."""
