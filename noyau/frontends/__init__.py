"""From a model to a Graph: one file a kind of model."""
