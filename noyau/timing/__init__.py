"""The clock: interleaved runs, medians, confidence intervals and verdicts."""
