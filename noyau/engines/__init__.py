"""Data larger than memory: reductions as monoids, sources and sinks, and the engines that run ops over them."""
