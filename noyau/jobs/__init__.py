"""The jobs that users run, one folder each: optimize, check, bench, profile, show, extract, machine."""
