"""Is it right? Truth in float64, certificates, adversarial inputs, findings."""
