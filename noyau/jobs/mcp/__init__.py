"""The command `noyau mcp`, and the server behind it."""
