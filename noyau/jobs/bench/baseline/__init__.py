"""Baselines of a bench: the saved sources of earlier candidates, which are timed again beside the present ones."""
