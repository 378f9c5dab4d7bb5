/* Cells that are not read again soon, written around the caches where the processor can, and where they begin with a
   line of 64 bytes: what shares a line with others goes faster through the caches. By the compiler's own functions: the
   headers that name them take a third of a second to compile. */
#include <string.h>
#if defined(__AVX__)
typedef long long noyau_vector __attribute__((vector_size(32)));
#elif defined(__SSE2__)
typedef long long noyau_vector __attribute__((vector_size(16)));
#endif
#if defined(__SSE2__) && defined(__clang__)
#define NOYAU_AROUND(to, cells) __builtin_nontemporal_store(cells, to)
#elif defined(__AVX__) && defined(__GNUC__)
#define NOYAU_AROUND(to, cells) __builtin_ia32_movntdq256(to, cells)
#elif defined(__SSE2__) && defined(__GNUC__)
#define NOYAU_AROUND(to, cells) __builtin_ia32_movntdq(to, cells)
#endif

static inline void noyau_write_around(void *restrict to, const void *restrict from, size_t bytes)
{
    char *line = to;
    const char *cells = from;
#if defined(NOYAU_AROUND)
    const int aligned = !((uintptr_t)to & 63);
    for (; aligned && bytes >= 64; line += 64, cells += 64, bytes -= 64) {
        for (size_t at = 0; at < 64; at += sizeof(noyau_vector)) {
            noyau_vector vector;
            memcpy(&vector, cells + at, sizeof vector);
            NOYAU_AROUND((noyau_vector *)(line + at), vector);
        }
    }
#endif
    memcpy(line, cells, bytes);
}

/* After the last of them, before another thread is told that they are there. */
static inline void noyau_written_around(void)
{
#if defined(NOYAU_AROUND)
    __builtin_ia32_sfence();
#endif
}
