"""Verification of kernels: truth in float64, certificates, adversarial inputs, findings."""
