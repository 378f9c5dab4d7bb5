"""The clock: interleaved runs, medians, intervals and verdicts."""
