"""`noyau.bench` on a GPU: the same tasks, judges, rounds and verdicts, with the clock of its stream."""
