"""Language `cuda`: CUDA C++ for NVRTC and nvcc."""
