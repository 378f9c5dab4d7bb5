/* A hint to fetch a line of memory that is read soon, into the second cache: in the first one it would
   take the place of what is read now. */
#if defined(__GNUC__)
#define NOYAU_PREFETCH(cell) __builtin_prefetch(cell, 0, 2)
#else
#define NOYAU_PREFETCH(cell) ((void)0)
#endif
