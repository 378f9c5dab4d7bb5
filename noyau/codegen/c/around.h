/* Cells that are not read again soon, written around the caches where the processor can: whole lines of 64 bytes. The
   cells before the first one and after the last go through the caches, and all do where they are few and do not begin
   with a line. By the compiler's own functions: the headers that name them take a third of a second to compile. */
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
    const size_t before = -(uintptr_t)to & 63;
    const int whole = !before || bytes >= 512;
    const size_t tile = bytes;
    if (before && whole) {
        memcpy(line, cells, before);
        line += before, cells += before, bytes -= before;
    }
    for (; whole && bytes >= 64; line += 64, cells += 64, bytes -= 64) {
        for (size_t at = 0; at < 64; at += sizeof(noyau_vector)) {
            noyau_vector vector;
            memcpy(&vector, cells + at, sizeof vector);
            NOYAU_AROUND((noyau_vector *)(line + at), vector);
        }
    }
    if (!bytes) return; /* a call that copies nothing takes as long as a line */
    if (tile >= 1024) __builtin_prefetch(line + tile, 1); /* the line where the next tile ends, which waits for memory */
#endif
    memcpy(line, cells, bytes);
}

/* Whether a line of 64 bytes begins there, and such lines, of a known number of bytes: the compiler may have them in
   registers. */
static inline int noyau_begins_line(const void *to)
{
#if defined(NOYAU_AROUND)
    return !((uintptr_t)to & 63);
#else
    (void)to;
    return 0;
#endif
}

static inline __attribute__((always_inline))
void noyau_write_lines(void *restrict to, const void *restrict from, size_t bytes)
{
#if defined(NOYAU_AROUND)
    for (size_t at = 0; at < bytes; at += sizeof(noyau_vector)) {
        noyau_vector vector;
        memcpy(&vector, (const char *)from + at, sizeof vector);
        NOYAU_AROUND((noyau_vector *)((char *)to + at), vector);
    }
#else
    memcpy(to, from, bytes);
#endif
}

/* After the last of them, before another thread is told that they are there. */
static inline void noyau_written_around(void)
{
#if defined(NOYAU_AROUND)
    __builtin_ia32_sfence();
#endif
}
