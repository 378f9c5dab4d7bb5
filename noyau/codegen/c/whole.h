/* Before a loop in lanes over a few values in memory of the thread: gcc 12 else unrolls it, with these as scalars,
   and makes no vectors any more. */
#if defined(__GNUC__) && !defined(__clang__)
#define NOYAU_WHOLE _Pragma("GCC unroll 1")
#else
#define NOYAU_WHOLE
#endif
