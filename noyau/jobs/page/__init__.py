"""Pages: what a job has found, as one HTML file that needs no network."""
