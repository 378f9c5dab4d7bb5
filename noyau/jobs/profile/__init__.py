"""The profile of a model in onnxruntime, and an upper bound of the gain by fusion, before anything is compiled."""
