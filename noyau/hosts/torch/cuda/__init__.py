"""CUDA tensors of PyTorch: launches, clocks, errors, DLPack."""
