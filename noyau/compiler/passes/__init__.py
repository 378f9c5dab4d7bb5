"""Graph -> Graph: one file a concern."""
