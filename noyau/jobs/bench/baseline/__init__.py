"""Baselines of a bench: what was timed before, with its source, to be timed again beside what it has become."""
