"""The job `noyau stream`."""
