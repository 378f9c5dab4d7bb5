"""The compiler: graph to graph to kernel to scheduled kernel."""
