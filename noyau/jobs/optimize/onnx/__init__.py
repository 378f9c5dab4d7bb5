"""Each kernel judged: certified, timed in the place of what it replaces, kept or dropped; then the whole model."""
