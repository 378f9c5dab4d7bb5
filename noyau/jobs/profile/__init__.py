"""The profile of a model in onnxruntime, and the most that fusing could gain, before anything is compiled."""
