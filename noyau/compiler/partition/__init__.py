"""Cut a graph into groups, each of which becomes one kernel."""
