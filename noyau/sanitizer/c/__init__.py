"""C, C++ and CUDA C++ with every access watched: the user's text built to call this runtime, and run as a program."""
