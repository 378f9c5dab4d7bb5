"""Scripts and notebooks as they are, every parallel loop and launch in them watched."""
