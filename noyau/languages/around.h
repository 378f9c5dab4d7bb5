/* Cells that are not read again soon, written around the caches where the processor can, and where they begin with a
   line of 64 bytes: what shares a line with others goes faster through the caches. */
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

static inline void noyau_write_around(void *restrict to, const void *restrict from, size_t bytes)
{
    char *line = to;
    const char *cells = from;
#if defined(__SSE2__)
    const int aligned = !((uintptr_t)to & 63);
    for (; aligned && bytes >= 64; line += 64, cells += 64, bytes -= 64) {
#if defined(__AVX__)
        _mm256_stream_si256((__m256i *)line, _mm256_loadu_si256((const __m256i *)cells));
        _mm256_stream_si256((__m256i *)(line + 32), _mm256_loadu_si256((const __m256i *)(cells + 32)));
#else
        for (int at = 0; at < 64; at += 16) {
            _mm_stream_si128((__m128i *)(line + at), _mm_loadu_si128((const __m128i *)(cells + at)));
        }
#endif
    }
#endif
    memcpy(line, cells, bytes);
}

/* After the last of them, before another thread is told that they are there. */
static inline void noyau_written_around(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}
