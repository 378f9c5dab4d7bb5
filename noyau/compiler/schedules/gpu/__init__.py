"""Schedules for GPUs: programs of a grid, and tiles of cells that a program holds."""
