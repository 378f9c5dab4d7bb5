"""Where the time of a model goes in onnxruntime, and what fusing it could gain at most, before anything is compiled."""
