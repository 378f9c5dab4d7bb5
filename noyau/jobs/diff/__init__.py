"""The difference of two models, whoever made them: nodes, weights, values."""
