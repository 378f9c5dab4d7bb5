"""Worker processes, signals, and what the machine lets this process use."""
