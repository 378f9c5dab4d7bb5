"""C compilers: source text to a loaded library."""
