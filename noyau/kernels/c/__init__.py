"""User kernels in C, C++ and CUDA C++: their parameters and their text."""

SUFFIXES = {".c": "c", ".cc": "cpp", ".cpp": "cpp", ".cxx": "cpp", ".cu": "cuda"}  # of files, to languages
