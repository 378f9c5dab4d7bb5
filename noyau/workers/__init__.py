"""Worker processes, signals, and the share of the machine that this process may use."""
