"""Reverse-mode derivatives on the graph IR: a graph's gradient is another graph, fused like any other."""
