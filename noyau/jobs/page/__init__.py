"""Pages: the results of a job as one HTML file that needs no network."""
