"""Each kernel judged: certified, timed in place of the operators it replaces, kept or dropped; then the whole model."""
