"""The difference of two models from any source: nodes, weights, values."""
