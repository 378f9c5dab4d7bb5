"""Results as a reader sees them: in the terminal and as JSON."""
