"""Schedules for CPUs: threads, vector lanes, tiles, caches."""
