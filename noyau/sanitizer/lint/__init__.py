"""What is right and yet wasted, or soon wrong, or not what it looks like: warnings, with lines and what would do."""
