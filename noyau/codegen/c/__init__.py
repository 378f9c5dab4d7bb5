"""Language `c`: C11 for gcc, clang and zig, against the ABI of noyau.h."""
