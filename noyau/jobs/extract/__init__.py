"""One path through a model: what lies between some of its values, and one's own kernel in its place."""
