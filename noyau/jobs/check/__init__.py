"""Evidence: values against float64, adversarial inputs, and the certificate of a kernel."""
