"""The jobs that users run, a folder for each: optimize, check, bench, stream, profile, show, diff, extract, machine."""
