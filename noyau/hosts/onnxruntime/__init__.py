"""onnxruntime: custom operators, sessions, models written back."""
