"""User kernels in C, C++ and CUDA C++: their parameters and their text."""
