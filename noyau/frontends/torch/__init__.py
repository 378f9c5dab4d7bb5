"""Import of graphs of ATen operators, as torch.export and AOTAutograd write them, into the graph IR."""
